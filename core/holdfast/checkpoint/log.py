"""The log of one store: delta and snapshot files in Spark's format."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING

import xxhash

from holdfast.checkpoint.chain import Chain, Route, delta_name, snapshot_name
from holdfast.checkpoint.framing import compress, compress_parts, decompress, decompress_blocks
from holdfast.checkpoint.loading import LoadingReport
from holdfast.checkpoint.records import (
    END,
    decode_record_parts,
    decode_records,
    encode_records,
    split_parent,
    with_parent,
)
from holdfast.checkpoint.storage import MissingFile
from holdfast.errors import CorruptState, MissingVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from holdfast.checkpoint.storage import Folder

log = logging.getLogger(__name__)

_READ_AHEAD = 16
"""Files read in parallel while loading; bounds how much of a long chain is in memory at once."""


_WHOLE = 32 << 20
"""Snapshots up to this size (of the file) are decoded in one go."""

_PART = 8 << 20
"""Bytes of records decoded at a time in larger ones."""

_PAIRS = 50_000
"""Pairs encoded at a time for a snapshot, at most; fewer where they are large, for parts of about the size above."""

_FIRST_PAIRS = 500
"""Pairs encoded first, to see how large they are."""


@dataclass(frozen=True)
class Piece:
    """The content of one file of the log, or a part of it: a large snapshot comes in several pieces."""

    version: int
    is_snapshot: bool
    keys: list[bytes]
    values: list[bytes | None]
    identity: str | None
    """Which of the possible contents of this version it is, if known; of a snapshot only where no delta follows."""


def apply_changes(state: dict[bytes, bytes], keys: Iterable[bytes], values: Iterable[bytes | None]) -> None:
    """Set the values of keys in ``state``; ``None`` removes a key."""
    for key, value in zip(keys, values, strict=True):
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


def identity_of(data: bytes) -> str:
    """The identity of a version: a hash of its delta file.

    A batch that runs twice can commit two different versions of one number, so the number alone
    does not say what a version contains. A delta names the identity of the version it changes, so
    its hash stands for the whole chain below it: two empty deltas on different versions differ.
    """
    return xxhash.xxh3_128_hexdigest(data)


class CheckpointLog:
    """Reads and writes the log of one store. Only one thread publishes at a time; others may read."""

    def __init__(self, folder: Folder, codec: str, *, row_checksums: bool = False) -> None:
        """``row_checksums`` is for reading what Spark wrote with that setting: see `decode_records`."""
        self.folder = folder
        self._codec = codec
        self._row_checksums = row_checksums
        self._lock = Lock()
        self._chain: Chain | None = None
        self._listings = 0
        self._changes: list[Callable[[Chain], Chain]] = []
        """What was done to the files while somebody is listing them."""
        self._last_appended: int | None = None
        self.snapshots_repaired = 0

    def refresh(self) -> Chain:
        """Look which files there are."""
        with self._lock:
            self._listings += 1
            seen = len(self._changes)
        try:
            names = self.folder.list()
        except BaseException:
            with self._lock:
                self._listings -= 1
            raise
        with self._lock:
            chain = Chain.of(names)
            # What was published or removed meanwhile may or may not be in the listing.
            for change in self._changes[seen:]:
                chain = change(chain)
            self._chain = chain
            self._listings -= 1
            if not self._listings:
                self._changes.clear()
        return chain

    def _known(self) -> Chain:
        chain = self._chain
        return chain if chain is not None else self.refresh()

    def _note(self, change: Callable[[Chain], Chain]) -> None:
        """Remember what was done to the files."""
        with self._lock:
            if self._chain is not None:
                self._chain = change(self._chain)
            if self._listings:
                self._changes.append(change)

    def identity(self, version: int) -> str | None:
        """The identity of a version in the log, or ``None`` where its delta is gone."""
        try:
            return identity_of(self.folder.read(delta_name(version)))
        except MissingFile:
            return None

    def deltas(self, first: int, last: int, parent: str | None = None) -> Iterator[Piece]:
        """The changes that made the versions ``first`` to ``last``; ``parent`` is the identity of the one before."""
        return self._pieces(Route(None, range(first, last + 1)), parent)

    def load(self, version: int) -> Iterator[Piece]:
        """Everything that makes ``version``, in the order in which it applies.

        A snapshot that is damaged is passed over for an older one and the deltas since; that is
        found out before anything is given out.
        """
        chain = self.refresh()
        damage: list[CorruptState] = []
        for route in chain.routes(version, self.folder.shown):
            if route.snapshot is None:
                first: Iterable[Piece] = ()
            else:
                try:
                    first = self._read_snapshot(route.snapshot, is_all=not route.deltas)
                except CorruptState as error:
                    log.warning("Snapshot %d of %s cannot be used: %s", route.snapshot, self.folder.shown, error)
                    damage.append(error)
                    continue
            if damage:
                self.snapshots_repaired += 1
                log.warning("Loading version %d of %s from %s instead", version, self.folder.shown, route.names[:1])
            return self._continued(first, Route(None, route.deltas))
        raise CorruptState(
            f"version {version} of {self.folder.shown} cannot be loaded: {damage[0]}; and no older snapshot with all"
            " deltas since is left to replace it"
        ) from damage[0]

    def _continued(self, first: Iterable[Piece], rest: Route) -> Iterator[Piece]:
        yield from first
        yield from self._pieces(rest)

    def _read_snapshot(self, version: int, *, is_all: bool) -> Iterable[Piece]:
        name = snapshot_name(version)
        where = self._where(name)
        with LoadingReport(self.folder.shown) as report:
            report.doing = f"reading {name}"
            data = self.folder.read(name)
            identity = self.identity(version) if is_all else None
            report.doing = f"decoding {name} of {len(data)} bytes"
            if len(data) > _WHOLE:
                # Damage must show before the first piece is given out.
                for _ in decompress_blocks(data, where):
                    pass
                return self._snapshot_pieces(version, identity, data, where)
            records = decompress(data, where)
            keys, values = decode_records(records, where, allow_removed=False, row_checksums=self._row_checksums)
        return (Piece(version, True, keys, values, identity),)

    def _snapshot_pieces(self, version: int, identity: str | None, data: bytes, where: str) -> Iterator[Piece]:
        parts = _joined(decompress_blocks(data, where), _PART)
        for keys, values in decode_record_parts(parts, where, allow_removed=False, row_checksums=self._row_checksums):
            yield Piece(version, True, keys, values, identity)

    def _pieces(self, route: Route, parent: str | None = None) -> Iterator[Piece]:
        names, versions = route.names, list(route.deltas)
        with LoadingReport(self.folder.shown) as report:
            for start in range(0, len(names), _READ_AHEAD):
                report.doing = f"{start} of {len(names)} deltas"
                try:
                    contents = self.folder.read_many(names[start : start + _READ_AHEAD])
                except MissingFile as error:
                    # Listed a moment ago or taken for granted by the caller; either way the chain has a hole.
                    raise MissingVersion(f"the chain of {self.folder.shown} has a hole: {error}") from error
                for name, version, data in zip(names[start:], versions[start:], contents, strict=False):
                    where = self._where(name)
                    content = decompress(data, where)
                    _check_parent(split_parent(content)[1], parent, where)
                    keys, values = decode_records(content, where, row_checksums=self._row_checksums)
                    parent = identity_of(data)
                    yield Piece(version, False, keys, values, parent)

    def _where(self, name: str) -> str:
        return f"{self.folder.shown}/{name}"

    def append(
        self, version: int, changes: Mapping[bytes, bytes | None], parent: str | None, ask: Callable[[], None]
    ) -> str:
        """Publish the delta of ``version`` and return its identity.

        ``parent`` is the identity of the version that the changes were made on, where it is known.

        What lies above belongs to a future that did not happen, and is set aside once ``ask`` has
        said yes.
        """
        records = encode_records(changes.keys(), changes.values())
        data = compress(records if parent is None else with_parent(records, bytes.fromhex(parent)), self._codec)
        # In the ordinary case the version follows the last one, and nothing is listed.
        may_be_made_again = self._last_appended is None or version != self._last_appended + 1
        if may_be_made_again:
            self.refresh()

        # Looked up before asking: what comes later may be from an attempt that was allowed after this one.
        above = self._known().above(version - 1)

        def ask_and_set_aside() -> None:
            ask()
            while above:
                self._set_aside(above[0], version)
                del above[0]

        identity = identity_of(data)
        self.folder.publish(delta_name(version), data, ask_and_set_aside)
        self._last_appended = version
        self._note(lambda chain: chain.including([delta_name(version)]))
        if may_be_made_again:
            # Maintenance of an earlier run may have been about to write a snapshot of the version that was replaced.
            # It looks at the delta after writing, we look for snapshots after replacing: one of us sees the other.
            late = self.refresh().above(version - 1)
            # If the delta is another one by now, then so may be what lies above it.
            if late and self.identity(version) == identity:
                for name in late:
                    self._set_aside(name, version)
        return identity

    def _set_aside(self, name: str, version: int) -> None:
        log.warning("Setting aside %s: version %d is made again", self._where(name), version)
        try:
            aside = [self.folder.set_aside(name)]
        except MissingFile:
            aside = []
        self._note(lambda chain: chain.without([name]).including(aside))

    def start_at(self, version: int) -> None:
        """Give a state that begins empty at ``version`` a beginning of its chain."""
        self.write_snapshot(version, ())

    def write_snapshot(self, version: int, pairs: Iterable[tuple[bytes, bytes]]) -> int:
        """Publish everything in ``version``; returns the size of the file."""
        data = compress_parts(_encoded(iter(pairs)), self._codec)
        self.folder.publish(snapshot_name(version), data)
        self._note(lambda chain: chain.including([snapshot_name(version)]))
        return len(data)

    def withdraw_snapshot(self, version: int) -> None:
        """Take a snapshot back that turned out to be of a version that was replaced."""
        self.folder.remove([snapshot_name(version)])
        self._note(lambda chain: chain.without([snapshot_name(version)]))

    def shortest_route(self, version: int) -> Route:
        """The shortest way to ``version``, by the files that are known."""
        try:
            return next(self._known().routes(version, self.folder.shown))
        except MissingVersion:
            # Somebody else may have published or removed files since.
            return next(self.refresh().routes(version, self.folder.shown))

    def clean(self, oldest: int) -> list[str]:
        """Remove the files that no version from ``oldest`` on needs; returns their names."""
        names = self.refresh().obsolete(oldest)
        self.folder.remove(names)
        self._note(lambda chain: chain.without(names))
        return names


def _encoded(pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[bytes | bytearray]:
    """The records of a snapshot, some at a time."""
    count = _FIRST_PAIRS
    while some := list(islice(pairs, count)):
        keys, values = zip(*some, strict=True)
        del some
        part = encode_records(keys, values)[: -len(END)]
        count = max(1, min(_PAIRS, 4 * count, count * _PART // len(part)))
        yield part
    yield END


def _joined(blocks: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """The blocks, several together so that they have about that size."""
    waiting: list[bytes | memoryview] = []
    length = 0
    for block in blocks:
        waiting.append(block)
        length += len(block)
        if length >= size:
            yield b"".join(waiting)
            waiting, length = [], 0
    if waiting:
        yield b"".join(waiting)


def _check_parent(named: bytes | None, below: str | None, where: str) -> None:
    """Refuse a delta on top of another version than it was made on: the two together are a state that never was."""
    if named is not None and below is not None and named.hex() != below:
        raise CorruptState(
            f"{where} was made on another version than the one below it in the log: two writers have mixed their"
            " versions; `holdfast rollback` can take a stopped query back to the version below"
        )
