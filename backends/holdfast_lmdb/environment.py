"""One LMDB environment: the pairs of one version, and what to undo to see the versions just before it.

The map grows as needed. LMDB allows that only while nobody reads, so every read goes through ``reading``, which lets
go of LMDB in between, and open snapshots are taken anew afterwards.

LMDB holds every page that a transaction changes in memory, so large changes are written in parts, each a transaction
of its own. What a part replaces is recorded with it in the journal, and until the last one the head says that this is
unfinished: whoever finds that undoes what the journal has.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

import lmdb

from holdfast import fault_point
from holdfast.errors import HoldfastError, InvalidSetting, Unavailable
from holdfast_lmdb.layout import JOURNAL, undo_changes, undo_entries, undo_prefix
from holdfast_lmdb.pairs import change, change_index, index_entries, moves_of
from holdfast_lmdb.steps import merged, parts, undo_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast import Changes
    from holdfast_lmdb.key_order import Orders
    from holdfast_lmdb.pairs import Moves
    from holdfast_lmdb.place import Place
    from holdfast_lmdb.steps import Part, Step

log = logging.getLogger(__name__)

_SMALLEST_MAP = 1 << 20
_READERS = 1024
_DATABASES = 8
_HEAD = b"head"
_SPACE_FOR_CHANGES = 4
"""Bytes to have ready for each byte that changes: for itself, what it replaces, and pages that are not full."""
_SPACE_FOR_PART = 1 << 17
"""Bytes to have ready for each part: every transaction writes some pages anew that others wrote before."""

Versions: TypeAlias = "Mapping[int, tuple[str | None, int]]"
"""Identity and number of keys by version."""


class Snapshot:
    """A read transaction that survives the growth of the map."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.made_at = environment.commits
        self.transaction: Any = None
        """LMDB's; ``None`` while the map grows, and when this is closed or lost."""

    def close(self) -> None:
        """Let go of what is only kept for this snapshot."""
        self._environment.forget(self)


class Environment:
    """LMDB, opened by this process alone. Writers take turns by the caller's lock; readers need none."""

    def __init__(self, place: Place, store: str, orders: Orders, max_size: int, keys_in_part: int) -> None:
        self._place = place
        self._store = store
        self._orders = orders
        self.max_size = max_size
        self._keys_in_part = keys_in_part
        self._gate = Lock()
        """Held while LMDB is read, and while nobody may."""
        self._snapshots: WeakSet[Snapshot] = WeakSet()
        self.commits = 0
        self.versions: Versions = {}
        """The newest version and those that can be undone to."""
        if not self._open(place.prepare()):
            log.warning("The LMDB environment %s is not that of %s", place.folder, store)
            self._lmdb.close()
            place.discard()
            self._open(False)

    def _open(self, is_there: bool) -> bool:
        """Open the files; False if they turn out to be another store's."""
        size = max(_SMALLEST_MAP, (self._place.folder / "data.mdb").stat().st_size * 2) if is_there else _SMALLEST_MAP
        try:
            self._lmdb = lmdb.open(
                str(self._place.folder),
                map_size=min(size, max(self.max_size, size // 2)),
                max_dbs=_DATABASES,
                max_readers=_READERS,
                # The log is the truth: what a crash of the machine costs is rebuilt from there.
                sync=False,
                metasync=False,
                meminit=False,
                # Reads are of single keys all over the file.
                readahead=False,
                mode=0o600,
            )
            self._place.mark_open()
            self._state = self._lmdb.open_db(b"state")
            self._undo = self._lmdb.open_db(b"undo")
            self._head = self._lmdb.open_db(b"head")
            self._indexes = [(order, self._lmdb.open_db(order.name)) for order in self._orders.all()]
        except (lmdb.Error, OSError) as error:
            raise self._failure(error) from error
        if not is_there:
            self._write(None, {0: (None, 0)})
            return True
        with self._lmdb.begin() as transaction:
            head = json.loads(transaction.get(_HEAD, b"{}", db=self._head))
        if head.get("store") != self._store:
            return False
        self.versions = {version: (identity, keys) for version, identity, keys in head["versions"]}
        if head["unfinished"]:
            self._undo_unfinished()
        return True

    @property
    def newest(self) -> int:
        """The version whose pairs are here; -1 while they are being loaded."""
        return max(self.versions, default=-1)

    def close(self) -> None:
        """Close the files in order; open snapshots are lost."""
        with self._gate:
            for snapshot in list(self._snapshots):
                self._end(snapshot)
            self._lmdb.close()
        self._place.mark_closed()
        self._place.leave()

    # Reading

    def snapshot(self) -> Snapshot:
        """Keep what is here now, whatever is written later."""
        with self._gate:
            snapshot = Snapshot(self)
            self._begin(snapshot)
            self._snapshots.add(snapshot)
        return snapshot

    def _begin(self, snapshot: Snapshot) -> None:
        try:
            snapshot.transaction = self._lmdb.begin(db=self._state)
        except lmdb.Error as error:
            raise self._failure(error) from error

    def _end(self, snapshot: Snapshot) -> None:
        if snapshot.transaction is not None:
            snapshot.transaction.abort()
            snapshot.transaction = None

    def forget(self, snapshot: Snapshot) -> None:
        """End a snapshot."""
        with self._gate:
            self._snapshots.discard(snapshot)
            self._end(snapshot)

    @contextmanager
    def reading(self, snapshot: Snapshot) -> Iterator[Any]:
        """LMDB's transaction of a snapshot, for a moment."""
        with self._gate:
            if snapshot.transaction is None:
                raise Unavailable(
                    f"what was read in {self._place.folder} is no longer there: the environment was closed, or had to"
                    " grow long after this version was opened; open the version again"
                )
            yield snapshot.transaction

    def index(self, name: bytes) -> Any:
        """LMDB's database of an index."""
        return next(database for order, database in self._indexes if order.name == name)

    def undone(self, version: int) -> Changes:
        """What differs between the newest version and an older one."""
        changes: Changes = {}
        with self._gate, self._lmdb.begin(db=self._undo) as transaction:
            # From new to old: of a key that changed twice the oldest record counts.
            for made in range(self.newest, version, -1):
                changes.update(self._undo_record(transaction, made))
        return changes

    def _undo_record(self, transaction: Any, version: int) -> Changes:
        prefix = undo_prefix(version)
        values = []
        cursor = transaction.cursor(self._undo)
        if cursor.set_range(prefix):
            for key, value in cursor:
                if not key.startswith(prefix):
                    break
                values.append(value)
        return undo_changes(values)

    # Writing

    def clear(self) -> None:
        """Forget everything; until ``finish`` there is no version here."""

        def drop_all(transaction: Any) -> None:
            for database in (self._state, self._undo, *(database for _, database in self._indexes)):
                transaction.drop(database, delete=False)

        self._write(drop_all, {})

    def load(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Add to what is being loaded."""
        moves: Moves = {}
        for part in parts(changes, self._keys_in_part):
            self._write(partial(self._load_part, part, moves))
        self._write_indexes(moves)

    def _load_part(self, part: Part, moves: Moves, transaction: Any) -> None:
        before = change(transaction, part)
        if self._indexes:
            moves.update(moves_of(part, before))

    def finish(self, version: int, identity: str | None) -> None:
        """What was loaded is ``version``."""
        with self._lmdb.begin() as transaction:
            entries = transaction.stat(self._state)["entries"]
        self._write(None, {version: (identity, entries)})

    def forward(self, steps: Sequence[Step], with_undo: int, keep_from: int) -> None:
        """Make the next versions, all or none; those from ``with_undo`` on can be undone.

        Versions before ``keep_from`` are given up.
        """
        plain = [step for step in steps if step.version < with_undo]
        steps = [*([merged(plain)] if plain else []), *steps[len(plain) :]]
        made = {step.version: (step.identity, step.num_keys) for step in steps}
        versions = made if plain else {**self.versions, **made}
        kept = {version: known for version, known in versions.items() if version >= keep_from}

        def record(transaction: Any, before: Changes) -> None:
            for version, values in undo_records(steps, min(kept), before):
                for key, value in undo_entries(version, 0, values):
                    transaction.put(key, value, db=self._undo)
            fault_point("lmdb.before_commit")

        self._rewrite(merged(steps).changes, kept, record)
        fault_point("lmdb.after_commit")

    def back_to(self, version: int) -> None:
        """Undo the versions above ``version``."""
        kept = {v: known for v, known in self.versions.items() if v <= version}
        self._rewrite(self.undone(version), kept, lambda transaction, before: None)

    def _rewrite(self, changes: Changes, versions: Versions, record: Callable[[Any, Changes], None]) -> None:
        """Change pairs, all or none; ``record`` is called in the last transaction with what there was before."""
        some = list(parts(changes, self._keys_in_part))
        size = sum(part.size for part in some)
        self._grow_early(_SPACE_FOR_CHANGES * size + _SPACE_FOR_PART * len(some))
        before: Changes = {}
        moves: Moves = {}
        if len(some) > 1:
            self._write(None, self.versions, unfinished=True)
            try:
                for number, part in enumerate(some):
                    self._write(partial(self._write_part, number, part, before, moves))
                self._write_indexes(moves)
                self._write(lambda transaction: record(transaction, before), versions)
            except BaseException:
                self._undo_unfinished()
                raise
            return

        def write(transaction: Any) -> None:
            for part in some:
                before.update(change(transaction, part))
                for order, database in self._indexes:
                    change_index(transaction, database, index_entries(order, moves_of(part, before)))
            record(transaction, before)

        self._write(write, versions)

    def _write_part(self, number: int, part: Part, before: Changes, moves: Moves, transaction: Any) -> None:
        replaced = change(transaction, part)
        for key, value in undo_entries(JOURNAL, number, replaced):
            transaction.put(key, value, db=self._undo)
        before.update(replaced)
        if self._indexes:
            moves.update(moves_of(part, replaced))
        fault_point("lmdb.before_commit")

    def _write_indexes(self, moves: Moves) -> None:
        for order, database in self._indexes:
            entries = index_entries(order, moves)
            for start in range(0, len(entries), self._keys_in_part):
                some = entries[start : start + self._keys_in_part]
                self._write(partial(change_index, database=database, entries=some))

    def _undo_unfinished(self) -> None:
        """Undo the parts that were written; where even that fails, nothing here is of use any more."""
        try:
            with self._gate, self._lmdb.begin() as transaction:
                journal = self._undo_record(transaction, JOURNAL)
            for part in parts(journal, self._keys_in_part):
                self._write(partial(self._load_part, part, {}))
            # How far the indexes were changed is not known, but no entry minds being written again.
            self._write_indexes({key: value is not None for key, value in journal.items()})
            self._write(None, self.versions)
        except HoldfastError:
            self.versions = {}
            log.warning("The LMDB environment %s must be filled anew", self._place.folder, exc_info=True)

    def _put_head(self, transaction: Any, versions: Versions, unfinished: bool) -> None:
        """Record which versions there are, and remove the undo records that lead to none of them."""
        listed = [(version, identity, keys) for version, (identity, keys) in versions.items()]
        head = {"store": self._store, "versions": listed, "unfinished": unfinished}
        transaction.put(_HEAD, json.dumps(head).encode(), db=self._head)
        oldest, newest = min(versions, default=0), max(versions, default=-1)
        cursor = transaction.cursor(self._undo)
        there = cursor.first()
        while there:
            made = int.from_bytes(cursor.key()[:8], "big")
            there = cursor.next() if oldest < made <= newest else cursor.delete() and bool(cursor.key())

    def _write(
        self, work: Callable[[Any], None] | None, versions: Versions | None = None, unfinished: bool = False
    ) -> None:
        """Do something in one transaction, in a larger map if need be; ``versions`` are those that are then here."""
        self._grow_early(0)
        while True:
            try:
                with self._lmdb.begin(db=self._state, write=True) as transaction:
                    if work is not None:
                        work(transaction)
                    if versions is not None:
                        self._put_head(transaction, versions, unfinished)
                break
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise self._failure(error) from error
        if versions is not None:
            self.versions = dict(versions)
        self.commits += 1

    def _grow_early(self, needed: int) -> None:
        """Grow while it disturbs nobody, rather than in the middle of a transaction or between two parts."""
        while 2 * self.used_bytes() + needed > self.map_size() < self.max_size and all(
            snapshot.made_at == self.commits for snapshot in list(self._snapshots)
        ):
            self._grow()

    def _grow(self) -> None:
        size = self.map_size()
        if size >= self.max_size:
            raise InvalidSetting(
                f"the LMDB environment {self._place.folder} of {self._store} has reached its {size} bytes:"
                " raise spark.holdfast.lmdb.maxSize, or use more partitions. What was committed is in the checkpoint"
            )
        larger = min(2 * size, self.max_size)
        with self._gate:
            snapshots = list(self._snapshots)
            for snapshot in snapshots:
                self._end(snapshot)
            try:
                self._lmdb.set_mapsize(larger)
            except lmdb.Error as error:
                raise self._failure(error) from error
            for snapshot in snapshots:
                # One of an earlier state cannot be taken again.
                if snapshot.made_at == self.commits:
                    self._begin(snapshot)
        log.info("The LMDB environment %s grows to %d bytes", self._place.folder, larger)

    def _failure(self, error: Exception) -> Unavailable:
        # By the message: not every release has the number. It is EIO when only a part of what is written finds room.
        full = any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
        advice = "; the disk is full or fails: free some space, or set spark.holdfast.lmdb.localDir to another" * full
        return Unavailable(
            f"the LMDB environment {self._place.folder} of {self._store}: {error}{advice}."
            " What was committed is in the checkpoint"
        )

    # Figures

    def map_size(self) -> int:
        """Bytes that the file may have before the map must grow."""
        return int(self._lmdb.info()["map_size"])

    def used_pages(self) -> int:
        """Pages of the file."""
        return int(self._lmdb.info()["last_pgno"]) + 1

    def used_bytes(self) -> int:
        """Bytes of the file."""
        return self.used_pages() * int(self._lmdb.stat()["psize"])
