"""One LMDB environment: the pairs of one version, and what to undo to see the versions just before it.

The map grows as needed. LMDB allows that only while nobody reads, so every read goes through ``reading``, which lets
go of LMDB in between, and open snapshots are taken anew afterwards.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

import lmdb

from holdfast import fault_point
from holdfast.errors import InvalidSetting, Unavailable
from holdfast_lmdb.layout import original_value, stored_key, stored_value, undo_changes, undo_entries, undo_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast import Changes
    from holdfast_lmdb.key_order import Orders
    from holdfast_lmdb.place import Place

log = logging.getLogger(__name__)

_SMALLEST_MAP = 1 << 20
_READERS = 1024
_DATABASES = 8
_HEAD = b"head"

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

    def __init__(self, place: Place, store: str, orders: Orders, max_size: int) -> None:
        self._place = place
        self._store = store
        self._orders = orders
        self.max_size = max_size
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
            self._write(lambda transaction: self._put_head(transaction, {0: (None, 0)}))
            return True
        with self._lmdb.begin() as transaction:
            head = json.loads(transaction.get(_HEAD, b"{}", db=self._head))
        if head.get("store") != self._store:
            return False
        self.versions = {version: (identity, keys) for version, identity, keys in head["versions"]}
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

        def write(transaction: Any) -> Versions:
            for database in (self._state, self._undo, *(database for _, database in self._indexes)):
                transaction.drop(database, delete=False)
            return self._put_head(transaction, {})

        self._write(write)

    def load(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Add to what is being loaded."""

        def write(transaction: Any) -> Versions:
            self._change(transaction, changes, None)
            return {}

        self._write(write)

    def finish(self, version: int, identity: str | None) -> None:
        """What was loaded is ``version``."""
        self._write(lambda transaction: self._put_head(transaction, {version: (identity, self._entries(transaction))}))

    def forward(self, steps: Sequence[tuple[int, str | None, Changes]], with_undo: int, keep_from: int) -> None:
        """Apply the changes of the next versions, all or none; those from ``with_undo`` on can be undone.

        Versions before ``keep_from`` are given up.
        """

        def write(transaction: Any) -> Versions:
            versions = dict(self.versions)
            plain = [step for step in steps if step[0] < with_undo]
            if plain:
                merged: Changes = {}
                for _, _, changes in plain:
                    merged.update(changes)
                self._change(transaction, merged, None)
                version, identity, _ = plain[-1]
                versions = {version: (identity, self._entries(transaction))}
            for version, identity, changes in steps[len(plain) :]:
                before: Changes = {}
                self._change(transaction, changes, before)
                for key, value in undo_entries(version, before):
                    transaction.put(key, value, db=self._undo)
                versions[version] = (identity, self._entries(transaction))
            fault_point("lmdb.before_commit")
            return self._put_head(transaction, {v: known for v, known in versions.items() if v >= keep_from})

        self._write(write)
        fault_point("lmdb.after_commit")

    def back_to(self, version: int) -> None:
        """Undo the versions above ``version``."""
        changes = self.undone(version)

        def write(transaction: Any) -> Versions:
            self._change(transaction, changes, None)
            return self._put_head(transaction, {v: known for v, known in self.versions.items() if v <= version})

        self._write(write)

    def _entries(self, transaction: Any) -> int:
        return int(transaction.stat(self._state)["entries"])

    def _change(self, transaction: Any, changes: Mapping[bytes, bytes | None], before: Changes | None) -> None:
        """Set and remove pairs, in their order, and fill ``before`` with the values that there were."""
        added: list[bytes] = []
        removed: list[bytes] = []
        indexed = bool(self._indexes)
        put, pop, replace = transaction.put, transaction.pop, transaction.replace
        state = self._state
        for key in sorted(changes):
            value = changes[key]
            stored = stored_key(key)
            if value is None:
                old = pop(stored, db=state)
                if old is not None:
                    removed.append(key)
            elif indexed or before is not None:
                old = replace(stored, stored_value(key, value), db=state)
                if old is None:
                    added.append(key)
            else:
                put(stored, stored_value(key, value), db=state)
                continue
            if before is not None:
                before[key] = original_value(key, old)
        for order, database in self._indexes:
            for entry in order.entries(removed):
                transaction.delete(entry, db=database)
            for entry, key in sorted(zip(order.entries(added), added, strict=True)):
                put(entry, stored_key(key), db=database)

    def _put_head(self, transaction: Any, versions: Versions) -> Versions:
        """Record which versions there are, and remove the undo records that lead to none of them."""
        listed = [(version, identity, keys) for version, (identity, keys) in versions.items()]
        head = json.dumps({"store": self._store, "versions": listed})
        transaction.put(_HEAD, head.encode(), db=self._head)
        oldest, newest = min(versions, default=0), max(versions, default=-1)
        cursor = transaction.cursor(self._undo)
        there = cursor.first()
        while there:
            made = int.from_bytes(cursor.key()[:8], "big")
            there = cursor.next() if oldest < made <= newest else cursor.delete() and bool(cursor.key())
        return versions

    def _write(self, write: Callable[[Any], Versions]) -> None:
        """Do something in one transaction, in a larger map if need be; it returns the versions that are then here."""
        self._grow_early()
        while True:
            try:
                with self._lmdb.begin(write=True) as transaction:
                    versions = write(transaction)
                break
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise self._failure(error) from error
        self.versions = dict(versions)
        self.commits += 1

    def _grow_early(self) -> None:
        """Grow while it disturbs nobody, rather than in the middle of a transaction."""
        all_current = all(snapshot.made_at == self.commits for snapshot in list(self._snapshots))
        if all_current and 2 * self.used_bytes() > self.map_size() and self.map_size() < self.max_size:
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
