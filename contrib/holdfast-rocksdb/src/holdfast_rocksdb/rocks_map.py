"""The newest version in RocksDB, and what to undo to see the ones before it.

Keys in the database begin with a letter: ``d`` and a generation for the pairs of the newest version; ``u``, a
generation and a version for the values that this version replaced; ``m`` alone for what is held. Every change is one
batch, which RocksDB applies whole or not at all, so a database that a crash left behind holds what it says. Loading a
version from the log fills a new generation, and its last batch makes it the valid one.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any

from rocksdict import DbClosedError, WriteBatch

from holdfast import StateMap, StateView
from holdfast.errors import IllegalState, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rocksdict import Rdict, RdictIter, Snapshot

    from holdfast import Changes, Pair
    from holdfast.errors import HoldfastError
    from holdfast_rocksdb.place import LocalPlace

log = logging.getLogger(__name__)

_HELD = b"m"
_FORMAT = 1
_PAIRS_PER_BATCH = 10_000
_PAIRS_PER_READ = 1_000
_ABSENT, _PRESENT = b"\x00", b"\x01"


@dataclass(frozen=True, slots=True)
class _Version:
    identity: str | None
    num_keys: int


@dataclass(frozen=True, slots=True)
class _Held:
    """What a database holds."""

    generation: int
    versions: dict[int, _Version]

    @property
    def newest(self) -> int:
        return max(self.versions)

    def to_json(self) -> bytes:
        versions = {str(number): asdict(version) for number, version in self.versions.items()}
        return json.dumps({"format": _FORMAT, "generation": self.generation, "versions": versions}).encode()

    @classmethod
    def from_json(cls, stored: bytes | None) -> _Held:
        """What ``to_json`` wrote; version 0 for a new database, or one of another format."""
        content: dict[str, Any] = {"format": None} if stored is None else json.loads(stored)
        if content["format"] != _FORMAT:
            return cls(0, {0: _Version(None, 0)})
        versions = {int(number): _Version(**version) for number, version in content["versions"].items()}
        return cls(content["generation"], versions)


class RocksMap(StateMap):
    """The newest version and a few before it, in a database that may outlive the process."""

    def __init__(self, place: LocalPlace, versions: int) -> None:
        # The newest and the one before: a batch that runs again opens that one, and maintenance snapshots it.
        self._keep = max(2, versions)
        self._place = place
        self.discarded = 0
        """How often a database was thrown away because it failed."""
        self._database = place.take()
        self._is_sound = True
        try:
            self._held = _Held.from_json(self._database.get(_HELD))
            self._remove_other_generations(self._held.generation)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, the log has everything
            self._start_anew()

    def identities(self) -> Mapping[int, str | None]:
        if not self._is_sound:
            return {}
        return {number: version.identity for number, version in self._held.versions.items()}

    def reset(self, version: int, identity: str | None, pairs: Iterable[Pair]) -> None:
        if not self._is_sound:
            self._start_anew()
        try:
            generation = self._held.generation + 1
            prefix = _pairs_prefix(generation)
            self._database.write(_range_removed(generation, generation + 1))
            iterator = iter(pairs)
            num_keys = 0
            while chunk := list(islice(iterator, _PAIRS_PER_BATCH)):
                batch = WriteBatch(raw_mode=True)
                for key, value in chunk:
                    batch.put(prefix + key, value)
                self._database.write(batch)
                num_keys += len(chunk)
            held = _Held(generation, {version: _Version(identity, num_keys)})
            last = _range_removed(0, generation)
            last.put(_HELD, held.to_json())
            self._database.write(last)
        except Exception as error:
            raise self.failure(error) from error
        self._held = held

    def apply(self, version: int, identity: str | None, changes: Changes) -> int:
        try:
            undone = _undone(self._database, self._held.generation, version - 1)
            before = self._before(changes, undone)
            held = self._with(version, identity, changes, before)
            self._database.write(self._batch(held, changes, before, undone))
        except Exception as error:
            raise self.failure(error) from error
        self._held = held
        return held.versions[version].num_keys

    def _before(self, changes: Changes, undone: Changes) -> Changes:
        """The values that the changed keys have in the version that is changed."""
        prefix = _pairs_prefix(self._held.generation)
        stored = self._database.get([prefix + key for key in changes])
        return {key: undone.get(key, value) for key, value in zip(changes, stored or (), strict=True)}

    def _with(self, version: int, identity: str | None, changes: Changes, before: Changes) -> _Held:
        base = self._held.versions[version - 1]
        added = sum((new is not None) - (before[key] is not None) for key, new in changes.items())
        kept = {v: each for v, each in self._held.versions.items() if version - self._keep < v < version}
        return replace(self._held, versions={**kept, version: _Version(identity, base.num_keys + added)})

    def _batch(self, held: _Held, changes: Changes, before: Changes, undone: Changes) -> WriteBatch:
        generation, version = held.generation, held.newest
        pairs = _pairs_prefix(generation)
        undo = _undo_prefix(generation, version)
        batch = WriteBatch(raw_mode=True)
        # RocksDB pays for every removed range when it reads.
        if min(held.versions) > min(self._held.versions):
            batch.delete_range(_undo_prefix(generation, 0), _undo_prefix(generation, min(held.versions) + 1))
        if version <= self._held.newest:
            batch.delete_range(undo, _undo_prefix(generation + 1, 0))
        # In a batch the last word on a key counts.
        for key, value in (*undone.items(), *changes.items()):
            if value is None:
                batch.delete(pairs + key)
            else:
                batch.put(pairs + key, value)
        for key, value in before.items():
            batch.put(undo + key, _ABSENT if value is None else _PRESENT + value)
        batch.put(_HELD, held.to_json())
        return batch

    def view(self, version: int) -> StateView:
        try:
            return _View(self, self._database, self._held, version)
        except Exception as error:
            raise self.failure(error) from error

    def memory_used_bytes(self) -> int:
        return self._measure("cur-size-all-mem-tables", "estimate-table-readers-mem", "block-cache-usage")

    def file_size(self) -> int:
        """Bytes of the sorted files on disk."""
        return self._measure("total-sst-files-size")

    def _measure(self, *properties: str) -> int:
        try:
            return sum(self._database.property_int_value(f"rocksdb.{name}") or 0 for name in properties)
        except DbClosedError:
            return 0

    def failure(self, error: Exception) -> HoldfastError:
        """The error to raise for one of RocksDB's; from then on the database is not trusted."""
        if isinstance(error, DbClosedError):
            return IllegalState(f"RocksDB database {self._place.path}: the provider is closed")
        self._is_sound = False
        return Unavailable(
            f"RocksDB database {self._place.path}: {error}; it is thrown away and loaded from the checkpoint when the"
            " store is opened again"
        )

    def _start_anew(self) -> None:
        self.discarded += 1
        self._close_database()
        self._place.discard()
        self._database = self._place.take()
        self._held = _Held.from_json(self._database.get(_HELD))
        self._is_sound = True

    def _remove_other_generations(self, generation: int) -> None:
        """Delete what a crash while loading left behind."""
        self._database.write(_range_removed(0, generation))
        self._database.write(_range_removed(generation + 1, generation + 2))

    def close(self) -> None:
        if not self._close_database():
            self._place.discard()
        self._place.leave()

    def _close_database(self) -> bool:
        """Close the database; False if it is not fit to be opened again."""
        try:
            self._database.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            log.warning("The RocksDB database %s is damaged: %s", self._place.path, error)
            return False
        return self._is_sound


class _View(StateView):
    """A held version: the newest one as it is now, and what to undo in it."""

    def __init__(self, rocks_map: RocksMap, database: Rdict, held: _Held, version: int) -> None:
        self._map = rocks_map
        self._prefix = _pairs_prefix(held.generation)
        self._end = _pairs_prefix(held.generation + 1)
        self._num_keys = held.versions[version].num_keys
        self._undone = {} if version == held.newest else _undone(database, held.generation, version)
        # An iterator shows the database as it was when it was made. One that is made from rocksdict's snapshot later
        # would not: it shows the database as it is by then.
        self._snapshot: Snapshot | None = database.snapshot()
        self._cursor: RdictIter | None = database.iter()
        self._cursor_lock = Lock()

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        prefix, undone = self._prefix, self._undone
        return [undone[key] if key in undone else self._stored(prefix + key) for key in keys]

    def _stored(self, key: bytes) -> bytes | None:
        if self._snapshot is None:
            raise _closed()
        try:
            value: bytes = self._snapshot[key]
        except Exception as error:
            # A snapshot has no other way to say it.
            if str(error) == "key not found":
                return None
            raise self._map.failure(error) from error
        return value

    def entries(self) -> Iterator[Pair]:
        if self._cursor is None:
            raise _closed()
        return self._entries(self._cursor)

    def _entries(self, cursor: RdictIter) -> Iterator[Pair]:
        skip, undone = len(self._prefix), self._undone
        start = self._prefix
        while chunk := self._chunk(cursor, start):
            for key, value in chunk:
                if key[skip:] not in undone:
                    yield key[skip:], value
            # The least key that is greater.
            start = chunk[-1][0] + b"\x00"
        for key, before in undone.items():
            if before is not None:
                yield key, before

    def _chunk(self, cursor: RdictIter, start: bytes) -> list[Pair]:
        """The next pairs from ``start`` on: all iterators of this view share its cursor."""
        try:
            with self._cursor_lock:
                return list(islice(_pairs(cursor, start, self._end), _PAIRS_PER_READ))
        except Exception as error:
            raise self._map.failure(error) from error

    def num_keys(self) -> int:
        return self._num_keys

    def close(self) -> None:
        self._snapshot = self._cursor = None


def _closed() -> IllegalState:
    return IllegalState("this view of a RocksDB database is closed")


def _pairs_prefix(generation: int) -> bytes:
    return b"d" + generation.to_bytes(8, "big")


def _undo_prefix(generation: int, version: int) -> bytes:
    return b"u" + generation.to_bytes(8, "big") + version.to_bytes(8, "big")


def _range_removed(generation: int, end: int) -> WriteBatch:
    """A batch that removes all from ``generation`` on and before ``end``."""
    batch = WriteBatch(raw_mode=True)
    batch.delete_range(_pairs_prefix(generation), _pairs_prefix(end))
    batch.delete_range(_undo_prefix(generation, 0), _undo_prefix(end, 0))
    return batch


def _undone(database: Rdict, generation: int, version: int) -> Changes:
    """What differs between the stored pairs and ``version``."""
    first = _undo_prefix(generation, version + 1)
    changes: Changes = {}
    for key, value in _pairs(database.iter(), first, _undo_prefix(generation + 1, 0)):
        # From old to new: of a key that changed twice the oldest record counts.
        changes.setdefault(key[len(first) :], value[1:] if value[:1] == _PRESENT else None)
    return changes


def _pairs(cursor: RdictIter, start: bytes, end: bytes) -> Iterator[Pair]:
    """What a cursor shows from ``start`` on and before ``end``."""
    # The end is looked at here: in rocksdict an iterator's bound holds only as long as its ReadOptions object lives.
    cursor.seek(start)
    while cursor.valid():
        key: bytes = cursor.key()
        if key >= end:
            return
        yield key, cursor.value()
        cursor.next()
    # It also stops when something cannot be read; this raises then.
    cursor.status()
