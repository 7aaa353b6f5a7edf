"""One store in Redis: reading a version, staging and publishing the next one."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from holdfast import fault_point
from holdfast.errors import CorruptState, Fenced, InvalidRequest, MissingVersion, Unavailable
from holdfast_redis import scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast import Changes, Pair, StateStoreId
    from holdfast_redis.server import Server

_KEYS_PER_CALL = 1000
_STAGED_FOR_SECONDS = 3600
"""How long Redis keeps the changes of an attempt that never came back."""

_PERMISSIONS_PER_COMMIT = 5
_PASSES_PER_SCAN = 20
_ABSENT, _PRESENT = b"\x00", b"\x01"


class Keyspace:
    """The keys of one store."""

    def __init__(self, server: Server, namespace: str, store: StateStoreId) -> None:
        self._server = server
        self.prefix = key_prefix(namespace, store)
        self._keys = [f"{self.prefix}versions", f"{self.prefix}pairs", f"{self.prefix}undo:"]
        with server.errors():
            register = server.client.register_script
            self._open, self._get, self._scan = map(register, (scripts.OPEN, scripts.GET, scripts.SCAN))
            self._publish, self._forget, self._start_at = map(
                register, (scripts.PUBLISH, scripts.FORGET, scripts.START_AT)
            )

    @property
    def location(self) -> str:
        """Where the store is, for messages."""
        return f"{self._server.url} {self.prefix}*"

    def open(self, version: int) -> tuple[str, int]:
        """The identity of a version and its number of keys."""
        how, *details = self._run(self._open, version)
        if how == b"missing":
            oldest, newest = (int(number) for number in details)
            kept = f"it has {oldest} to {newest}" if newest else "it has no version yet"
            raise MissingVersion(f"version {version} is not in {self.location}: {kept}")
        if how == b"damaged":
            raise CorruptState(
                f"{details[0].decode()} in Redis at {self._server.url} has lost entries: something else than Holdfast"
                " removed or changed it; restore Redis from a backup, or start from a new checkpoint"
            )
        identity, num_keys = details
        return identity.decode(), num_keys

    def get_many(self, version: int, identity: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of keys in a version."""
        with self._server.errors():
            pipeline = self._server.client.pipeline(transaction=False)
            for start in range(0, len(keys), _KEYS_PER_CALL):
                chunk = keys[start : start + _KEYS_PER_CALL]
                self._get(keys=self._keys, args=[version, identity, *chunk], client=pipeline)
            answers = pipeline.execute()
        values: list[bytes | None] = []
        for how, *details in answers:
            self._check_held(how, version)
            values.extend(value and value[1:] for value in details[0])
        return values

    def entries(self, version: int, identity: str, num_keys: int) -> Iterator[Pair]:
        """All pairs of a version, whatever is committed meanwhile."""
        seen: set[bytes] = set()
        for _ in range(_PASSES_PER_SCAN):
            for key, value in self._pass(version, identity):
                if value is not None and key not in seen:
                    seen.add(key)
                    yield key, value[1:]
            # Redis may not show a key that others removed and put back during the pass.
            if len(seen) == num_keys:
                return
        raise Unavailable(
            f"version {version} of {self.location} could not be read: {len(seen)} of its {num_keys} keys were found"
            f" while others went on changing it"
        )

    def _pass(self, version: int, identity: str) -> Iterator[tuple[bytes, bytes | None]]:
        """Every key of the newest version and of all undo hashes above ``version``, with its value in ``version``."""
        newest = yield from self._scanned(version, identity, 0)
        source = version + 1
        while source <= newest:
            newest = yield from self._scanned(version, identity, source)
            source += 1

    def _scanned(self, version: int, identity: str, source: int) -> Any:
        cursor = b"0"
        while True:
            how, *details = self._run(self._scan, version, identity, source, cursor)
            self._check_held(how, version)
            newest, cursor, keys, values = details
            yield from zip(keys, values, strict=True)
            if cursor == b"0":
                return newest

    def publish(self, base: int, base_identity: str, changes: Changes, ask: Callable[[], None]) -> tuple[int, str]:
        """Make version ``base + 1``; returns its number of keys and its identity."""
        identity = secrets.token_hex(8)
        staged = f"{self.prefix}staged:{identity}"
        try:
            self._stage(staged, changes)
            fault_point("redis.staged")
            seen = self._identity(base + 1)
            for _ in range(_PERMISSIONS_PER_COMMIT):
                ask()
                arguments = (base, base_identity, seen, identity, len(changes))
                how, *details = self._run(self._publish, *arguments, keys=[*self._keys, staged])
                if how == b"ok":
                    return details[0], identity
                if how == b"replaced":
                    raise Fenced(f"version {base} of {self.location} was made again or removed while it was open")
                if how == b"unstaged":
                    raise Unavailable(f"{staged} in Redis at {self._server.url} was lost before the commit")
                # Another attempt was faster than this one after it had been allowed: is it still?
                seen = details[0].decode()
            raise Unavailable(f"other attempts kept replacing version {base + 1} of {self.location}")
        except BaseException:
            self._drop(staged)
            raise

    def _stage(self, staged: str, changes: Changes) -> None:
        encoded = [(key, _ABSENT if value is None else _PRESENT + value) for key, value in changes.items()]
        with self._server.errors():
            pipeline = self._server.client.pipeline(transaction=False)
            for start in range(0, len(encoded), _KEYS_PER_CALL):
                pipeline.hset(staged, mapping=dict(encoded[start : start + _KEYS_PER_CALL]))
                pipeline.expire(staged, _STAGED_FOR_SECONDS)
            pipeline.execute()

    def _drop(self, staged: str) -> None:
        try:
            with self._server.errors():
                self._server.client.unlink(staged)
        except (Unavailable, InvalidRequest):
            pass  # it expires

    def _identity(self, version: int) -> str:
        """The identity of a version, or nothing if it is not there."""
        with self._server.errors():
            record: bytes | None = self._server.client.hget(self._keys[0], str(version))
        return "" if record is None else record.split()[0].decode()

    def forget(self, retain: int) -> None:
        """Remove all but the newest ``retain`` versions."""
        self._run(self._forget, retain)

    def start_at(self, version: int) -> None:
        """Begin empty at ``version`` unless that has happened."""
        how, *details = self._run(self._start_at, version, secrets.token_hex(8))
        if how == b"taken":
            raise InvalidRequest(
                f"{self.location} has state already, up to version {int(details[0])}: it cannot begin empty at version"
                f" {version}; give the operator another name, or remove its old state"
            )

    def _run(self, script: Any, *arguments: Any, keys: Sequence[str] | None = None) -> Any:
        with self._server.errors():
            return script(keys=keys or self._keys, args=arguments, client=self._server.client)

    def _check_held(self, how: bytes, version: int) -> None:
        if how != b"ok":
            raise Fenced(f"version {version} of {self.location} was made again or removed while it was open")


def key_prefix(namespace: str, store: StateStoreId) -> str:
    """How the names of all keys of ``store`` begin, and of no other store's."""
    query = hashlib.sha256(store.checkpoint_root.encode()).hexdigest()[:16]
    # What is in braces decides where a cluster puts a key: all keys of a store lie together.
    return f"{namespace}:{{{query}:{store.operator_id}:{store.partition_id}:{store.store_name}}}:"
