"""The newest version in RocksDB, and what to undo to see the ones before it.

Keys in the database begin with a letter: ``d`` and a generation for the pairs of the newest version; ``u``, a
generation and a version for the values that this version replaced; ``p`` or ``r`` and a generation for the entries of
an index of the newest version; ``m`` alone for what is held. Every change is one
batch, which RocksDB applies whole or not at all, so a database that a crash left behind holds what it says. Loading a
version from the log fills a new generation, and its last batch makes it the valid one.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from rocksdict import DbClosedError, WriteBatch

from holdfast import StateMap
from holdfast.errors import IllegalState, Unavailable
from holdfast_rocksdb.layout import (
    add_pairs,
    index_prefix,
    moves,
    pairs_prefix,
    range_removed,
    undo_prefix,
    undo_record,
    undone,
)
from holdfast_rocksdb.view import RocksView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast import Changes, Pair, Piece, StateView
    from holdfast.errors import HoldfastError
    from holdfast_rocksdb.key_order import Orders
    from holdfast_rocksdb.place import LocalPlace

log = logging.getLogger(__name__)

_HELD = b"m"
_FORMAT = 2
_PAIRS_PER_BATCH = 10_000


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

    def __init__(self, place: LocalPlace, versions: int, orders: Orders) -> None:
        # The newest and the one before: a batch that runs again opens that one, and maintenance snapshots it.
        self._keep = max(2, versions)
        self._place = place
        self._orders = orders
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
        generation = self._begin_generation()
        num_keys = 0
        rest = iter(pairs)
        while chunk := list(islice(rest, _PAIRS_PER_BATCH)):
            num_keys += self._fill(generation, dict(chunk), are_new=True)
        self._end_generation(generation, {version: _Version(identity, num_keys)})

    def load(self, version: int, pieces: Iterable[Piece]) -> None:
        generation = self._begin_generation()
        num_keys = 0
        identity: str | None = None
        for piece in pieces:
            identity = piece.identity
            for start in range(0, len(piece.keys), _PAIRS_PER_BATCH):
                some = slice(start, start + _PAIRS_PER_BATCH)
                changes = dict(zip(piece.keys[some], piece.values[some], strict=True))
                num_keys += self._fill(generation, changes, are_new=piece.is_snapshot)
        self._end_generation(generation, {version: _Version(identity, num_keys)})

    def _begin_generation(self) -> int:
        if not self._is_sound:
            self._start_anew()
        generation = self._held.generation + 1
        try:
            self._database.write(range_removed(generation, generation + 1))
        except Exception as error:
            raise self.failure(error) from error
        return generation

    def _fill(self, generation: int, changes: Changes, *, are_new: bool) -> int:
        """Add to a generation; returns by how many keys it grows."""
        try:
            before = dict.fromkeys(changes) if are_new else self._stored(generation, changes)
            batch = WriteBatch(raw_mode=True)
            add_pairs(batch, generation, changes)
            moved = moves(changes, before)
            self._add_index_entries(batch, generation, moved)
            self._database.write(batch)
        except Exception as error:
            raise self.failure(error) from error
        return sum(1 if came else -1 for came in moved.values())

    def _end_generation(self, generation: int, versions: dict[int, _Version]) -> None:
        held = _Held(generation, versions)
        try:
            last = range_removed(0, generation)
            last.put(_HELD, held.to_json())
            self._database.write(last)
        except Exception as error:
            raise self.failure(error) from error
        self._held = held

    def _stored(self, generation: int, keys: Iterable[bytes]) -> Changes:
        prefix = pairs_prefix(generation)
        keys = list(keys)
        found = self._database.get([prefix + key for key in keys]) if keys else None
        return dict(zip(keys, found or (), strict=True))

    def _add_index_entries(self, batch: WriteBatch, generation: int, moved: Mapping[bytes, bool]) -> None:
        keys = list(moved)
        for order in self._orders.all() if keys else ():
            prefix = index_prefix(order, generation)
            for sort_key, key in zip(order.sort_keys(keys), keys, strict=True):
                if moved[key]:
                    batch.put(prefix + sort_key + key, key)
                else:
                    batch.delete(prefix + sort_key + key)

    def apply(self, version: int, identity: str | None, changes: Changes) -> int:
        try:
            later = undone(self._database, self._held.generation, version - 1)
            before = self._before(changes, later)
            held = self._with(version, identity, changes, before)
            self._database.write(self._batch(held, changes, before, later))
        except Exception as error:
            raise self.failure(error) from error
        self._held = held
        return held.versions[version].num_keys

    def _before(self, changes: Changes, later: Changes) -> Changes:
        """The values that the changed keys have in the version that is changed."""
        stored = self._stored(self._held.generation, changes)
        return {key: later.get(key, value) for key, value in stored.items()}

    def _with(self, version: int, identity: str | None, changes: Changes, before: Changes) -> _Held:
        base = self._held.versions[version - 1]
        added = sum((new is not None) - (before[key] is not None) for key, new in changes.items())
        kept = {v: each for v, each in self._held.versions.items() if version - self._keep < v < version}
        return replace(self._held, versions={**kept, version: _Version(identity, base.num_keys + added)})

    def _batch(self, held: _Held, changes: Changes, before: Changes, later: Changes) -> WriteBatch:
        generation, version = held.generation, held.newest
        undo = undo_prefix(generation, version)
        batch = WriteBatch(raw_mode=True)
        # RocksDB pays for every removed range when it reads.
        if min(held.versions) > min(self._held.versions):
            batch.delete_range(undo_prefix(generation, 0), undo_prefix(generation, min(held.versions) + 1))
        if version <= self._held.newest:
            batch.delete_range(undo, undo_prefix(generation + 1, 0))
        both = {**later, **changes}
        add_pairs(batch, generation, both)
        # When a version is made again, the indexes are those of what it replaces. No entry minds being written twice.
        moved = {key: value is not None for key, value in both.items()} if later else moves(changes, before)
        self._add_index_entries(batch, generation, moved)
        for key, value in before.items():
            batch.put(undo + key, undo_record(value))
        batch.put(_HELD, held.to_json())
        return batch

    def view(self, version: int) -> StateView:
        try:
            held = self._held
            changed = {} if version == held.newest else undone(self._database, held.generation, version)
            num_keys = held.versions[version].num_keys
            return RocksView(self._database, held.generation, self._orders, changed, num_keys, self.failure)
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
        self._database.write(range_removed(0, generation))
        self._database.write(range_removed(generation + 1, generation + 2))

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
