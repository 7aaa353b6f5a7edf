"""A ready-made store over a backend that can show a version and publish a batch of changes.

Changes are held in a dict until commit. That makes the hard parts of the contract (isolation of
attempts, own changes visible, abort, copies of the caller's buffers) the same code in every backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from holdfast.contract.capabilities import Capability
from holdfast.contract.faults import fault_point
from holdfast.contract.lifecycle import Lifecycle, State
from holdfast.contract.store import BytesLike, Pair, ReadStateStore, StateStore, encoded_row, encoded_rows
from holdfast.errors import CommitFailed, CorruptState, Fenced, InvalidProvider, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from holdfast.contract.metrics import StateStoreMetrics
    from holdfast.contract.versioned import VersionedProvider
    from holdfast.ids import StateStoreId

Changes: TypeAlias = "dict[bytes, bytes | None]"
"""New values by key; ``None`` removes the key."""

_SCAN_CHUNK = 8192
"""Keys decoded at once by scans: enough to make bulk decoding pay, little enough to hold."""


@dataclass(frozen=True, slots=True)
class Published:
    """What came of a commit."""

    num_keys: int
    """Keys in the new version."""

    identity: str | None = None
    """What ``StateView.identity`` of the new version is."""


class StateView(ABC):
    """One committed version as a backend shows it. What it shows never changes while it is open."""

    identity: str | None = None
    """Which of the possible contents of this version it is, where the backend tells them apart."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``, or ``None``."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of ``keys``, in their order."""
        return [self.get(key) for key in keys]

    @abstractmethod
    def entries(self) -> Iterator[Pair]:
        """All pairs, each key once."""

    def range_entries(self, start: BytesLike | None, end: BytesLike | None) -> Iterator[Pair]:
        """At least the pairs that ``get_range`` asks for; a backend with sorted keys returns few more."""
        return self.entries()

    def prefix_entries(self, prefix: BytesLike, columns: int) -> Iterator[Pair]:
        """At least the pairs that ``prefix_scan`` asks for; a backend with sorted keys returns few more."""
        return self.entries()

    @abstractmethod
    def num_keys(self) -> int:
        """How many keys the version has."""

    def close(self) -> None:
        """Let go of what the view holds. Called once."""


class BufferedReadStore(ReadStateStore):
    """A read-only store over a ``StateView``."""

    def __init__(self, provider: VersionedProvider, version: int, view: StateView) -> None:
        self._provider = provider
        self._version = version
        self._view = view
        self._lifecycle = Lifecycle()
        self._identity = view.identity
        self._num_keys_at_end = 0

    @property
    def id(self) -> StateStoreId:
        return self._provider.store_id

    @property
    def version(self) -> int:
        return self._version

    @property
    def identity(self) -> str | None:
        return self._identity

    @property
    def metrics(self) -> StateStoreMetrics:
        open_ = self._lifecycle.state is State.UPDATING
        return self._provider.metrics_of(self._num_keys() if open_ else self._num_keys_at_end)

    def get(self, key: BytesLike) -> bytes | None:
        self._lifecycle.check("get")
        return self._view.get(encoded_row(key, "Key"))

    def get_many(self, keys: Sequence[BytesLike]) -> list[bytes | None]:
        self._lifecycle.check("get")
        return self._view.get_many(encoded_rows(keys, "Key"))

    def iterator(self) -> Iterator[Pair]:
        self._lifecycle.check("iterator")
        return self._current(self._view.entries())

    def get_range(self, start: BytesLike | None, end: BytesLike | None) -> Iterator[Pair]:
        self._lifecycle.check("get_range")
        if Capability.RANGE_SCAN not in self._provider.capabilities:
            return super().get_range(start, end)
        schema, ordinal = self._provider.key_schema, self._provider.key_index_ordinal
        if start is None and end is None and ordinal is None:
            return self.iterator()
        if ordinal is None:
            raise InvalidRequest("get_range needs an index column: give key_index_ordinal when the store is opened")
        start, end = (None if bound is None else encoded_row(bound, "Bound") for bound in (start, end))
        pairs = self._current(self._view.range_entries(start, end))
        return _in_range(pairs, schema, ordinal, start, end)

    def prefix_scan(self, prefix: BytesLike, columns: int) -> Iterator[Pair]:
        self._lifecycle.check("prefix_scan")
        if Capability.PREFIX_SCAN not in self._provider.capabilities:
            return super().prefix_scan(prefix, columns)
        schema = self._provider.key_schema
        if columns not in range(1, len(schema) + 1):
            raise InvalidRequest(f"prefix_scan over {columns!r} columns of a key that has {len(schema)}")
        prefix = encoded_row(prefix, "Prefix")
        _check_prefix(prefix, schema, columns)
        pairs = self._current(self._view.prefix_entries(prefix, columns))
        return _with_prefix(pairs, schema, columns, prefix)

    def abort(self) -> None:
        was_open = self._lifecycle.state is State.UPDATING
        self._lifecycle.move("abort")
        if was_open:
            try:
                self._num_keys_at_end = self._view.num_keys()
            finally:
                self._view.close()

    def _num_keys(self) -> int:
        return self._view.num_keys()

    def _current(self, entries: Iterator[Pair]) -> Iterator[Pair]:
        """``entries`` of the view, as this store shows them."""
        return entries

    def __repr__(self) -> str:
        which = f"op={self.id.operator_id},part={self.id.partition_id}"
        return f"{type(self).__name__}[id=({which}),dir={self._provider.location}]"


class BufferedStateStore(BufferedReadStore, StateStore):
    """A store for writing over a ``StateView``."""

    def __init__(self, provider: VersionedProvider, version: int, view: StateView) -> None:
        super().__init__(provider, version, view)
        self._changes: Changes = {}

    def get(self, key: BytesLike) -> bytes | None:
        self._lifecycle.check("get")
        key = encoded_row(key, "Key")
        if key in self._changes:
            return self._changes[key]
        return self._view.get(key)

    def get_many(self, keys: Sequence[BytesLike]) -> list[bytes | None]:
        self._lifecycle.check("get")
        rows = encoded_rows(keys, "Key")
        changes = self._changes
        if not changes:
            return self._view.get_many(rows)
        missing = [key for key in rows if key not in changes]
        below = iter(self._view.get_many(missing))
        return [changes[key] if key in changes else next(below) for key in rows]

    def put(self, key: BytesLike, value: BytesLike) -> None:
        self._lifecycle.check("put")
        self._changes[encoded_row(key, "Key")] = encoded_row(value, "Value")

    def put_many(self, keys: Sequence[BytesLike], values: Sequence[BytesLike]) -> None:
        self._lifecycle.check("put")
        if len(keys) != len(values):
            raise InvalidRequest(f"put_many got {len(keys)} keys and {len(values)} values")
        # Both are looked at first, so that a bad row in the middle leaves nothing half put.
        self._changes.update(zip(encoded_rows(keys, "Key"), encoded_rows(values, "Value"), strict=True))

    def remove(self, key: BytesLike) -> None:
        self._lifecycle.check("remove")
        self._changes[encoded_row(key, "Key")] = None

    def remove_many(self, keys: Sequence[BytesLike]) -> None:
        self._lifecycle.check("remove")
        self._changes.update(dict.fromkeys(encoded_rows(keys, "Key")))

    def commit(self) -> int:
        self._lifecycle.check("commit")
        new_version = self._version + 1
        asked = False

        def ask() -> None:
            nonlocal asked
            fault_point("commit.before_ask")
            self._provider.guard.before_publish(self)
            asked = True
            fault_point("commit.before_publish")

        try:
            published = self._provider.publish(self._version, self._view, self._changes, ask)
            fault_point("commit.after_publish")
        except Fenced:
            self.abort()
            raise
        except (InvalidRequest, CorruptState):
            raise
        except Exception as error:
            raise CommitFailed(f"Error committing version {new_version} into {self}: {error}") from error
        if not asked:
            raise InvalidProvider(
                f"{type(self._provider).__name__}.publish made version {new_version} visible without calling ask();"
                " call it immediately before publishing, or a task that was given up can overwrite newer state"
            )
        if isinstance(published, int):
            published = Published(published)
        self._num_keys_at_end = published.num_keys
        self._identity = published.identity
        self._view.close()
        self._lifecycle.move("commit")
        self._provider.observer.store_committed(self.id, new_version)
        return new_version

    @property
    def has_committed(self) -> bool:
        return self._lifecycle.state is State.COMMITTED

    def _num_keys(self) -> int:
        existing = self._view.get_many(list(self._changes))
        return self._view.num_keys() + sum(
            (new is not None) - (old is not None) for new, old in zip(self._changes.values(), existing, strict=True)
        )

    def _current(self, entries: Iterator[Pair]) -> Iterator[Pair]:
        # The copy is taken now, not when the generator first runs: an iterator shows the store
        # as it was when it was asked for.
        return _merged(entries, dict(self._changes))


def _merged(entries: Iterable[Pair], changes: Changes) -> Iterator[Pair]:
    for key, value in entries:
        if key not in changes:
            yield key, value
            continue
        new = changes.pop(key)
        if new is not None:
            yield key, new
    for key, new in changes.items():
        if new is not None:
            yield key, new


def _chunks(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    while chunk := list(islice(pairs, _SCAN_CHUNK)):
        yield chunk


def _in_range(
    pairs: Iterator[Pair], schema: pa.Schema, ordinal: int, start: bytes | None, end: bytes | None
) -> Iterator[Pair]:
    from holdfast.rows import KeyIndex

    index = KeyIndex(schema, ordinal)
    try:
        low = None if start is None else index.sort_key(start)
        high = None if end is None else index.sort_key(end)
    except CorruptState as error:
        raise InvalidRequest(f"a bound of get_range is not a row of the key's schema: {error}") from error
    found: list[tuple[bytes, bytes, bytes]] = []
    for chunk in _chunks(pairs):
        sort_keys = index.sort_keys([key for key, _ in chunk])
        found.extend(
            (at, key, value)
            for at, (key, value) in zip(sort_keys, chunk, strict=True)
            if (low is None or at >= low) and (high is None or at <= high)
        )
    found.sort()
    return ((key, value) for _, key, value in found)


def _check_prefix(prefix: bytes, schema: pa.Schema, columns: int) -> None:
    """Refuse bytes that no prefix of a key can be; they would quietly match nothing."""
    import pyarrow as pa

    from holdfast.rows import RowCodec, ddl

    leading = RowCodec(pa.schema([schema.field(position) for position in range(columns)]))
    try:
        fits = leading.encode(leading.decode([prefix]))[0].as_py() == prefix
    except CorruptState:
        fits = False
    if not fits:
        raise InvalidRequest(f"the prefix of prefix_scan is not a row of ({ddl(leading.schema)})")


def _with_prefix(pairs: Iterator[Pair], schema: pa.Schema, columns: int, prefix: bytes) -> Iterator[Pair]:
    from holdfast.rows import prefix_matches

    for chunk in _chunks(pairs):
        matches = prefix_matches(schema, columns, prefix, [key for key, _ in chunk])
        yield from (pair for pair, match in zip(chunk, matches, strict=True) if match)
