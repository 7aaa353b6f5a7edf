"""The log of one store: delta and snapshot files in Spark's format."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

import xxhash

from holdfast.checkpoint.chain import Chain, Route, delta_name, snapshot_name
from holdfast.checkpoint.framing import compress, decompress
from holdfast.checkpoint.records import decode_records, encode_records
from holdfast.checkpoint.storage import MissingFile
from holdfast.errors import CorruptState, MissingVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from holdfast.checkpoint.storage import Folder

log = logging.getLogger(__name__)

_READ_AHEAD = 16
"""Files read in parallel while loading; bounds how much of a long chain is in memory at once."""

_PROGRESS_AFTER_SECONDS = 1.0


@dataclass(frozen=True)
class Piece:
    """The content of one file of the log."""

    version: int
    is_snapshot: bool
    keys: list[bytes]
    values: list[bytes | None]
    identity: str | None
    """Which of the possible contents of this version it is; unknown for a snapshot."""


def identity_of(data: bytes) -> str:
    """The identity of a version: a hash of its delta file.

    A batch that runs twice can commit two different versions of one number, so the number alone
    does not say what a version contains.
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
        self._has_appended = False
        self.snapshots_repaired = 0

    def refresh(self) -> Chain:
        """Look which files there are."""
        chain = Chain.of(self.folder.list())
        with self._lock:
            self._chain = chain
        return chain

    def _known(self) -> Chain:
        return self._chain if self._chain is not None else self.refresh()

    def identity(self, version: int) -> str | None:
        """The identity of a version in the log, or ``None`` where its delta is gone."""
        try:
            return identity_of(self.folder.read(delta_name(version)))
        except MissingFile:
            return None

    def deltas(self, first: int, last: int) -> Iterator[Piece]:
        """The changes that made the versions ``first`` to ``last``."""
        return self._pieces(Route(None, range(first, last + 1)))

    def load(self, version: int) -> Iterator[Piece]:
        """Everything that makes ``version``, in the order in which it applies.

        A snapshot that is damaged is passed over for an older one and the deltas since; that is
        found out before anything is given out.
        """
        chain = self.refresh()
        damage: list[CorruptState] = []
        for route in chain.routes(version, self.folder.shown):
            if route.snapshot is None:
                first = None
            else:
                try:
                    first = self._read_snapshot(route.snapshot)
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

    def _continued(self, first: Piece | None, rest: Route) -> Iterator[Piece]:
        if first is not None:
            yield first
        yield from self._pieces(rest)

    def _read_snapshot(self, version: int) -> Piece:
        name = snapshot_name(version)
        where = self._where(name)
        data = decompress(self.folder.read(name), where)
        keys, values = decode_records(data, where, allow_removed=False, row_checksums=self._row_checksums)
        return Piece(version, True, keys, values, None)

    def _pieces(self, route: Route) -> Iterator[Piece]:
        names, versions = route.names, list(route.deltas)
        started = reported = monotonic()
        for start in range(0, len(names), _READ_AHEAD):
            try:
                contents = self.folder.read_many(names[start : start + _READ_AHEAD])
            except MissingFile as error:
                # Listed a moment ago or taken for granted by the caller; either way the chain has a hole.
                raise MissingVersion(f"the chain of {self.folder.shown} has a hole: {error}") from error
            for name, version, data in zip(names[start:], versions[start:], contents, strict=False):
                where = self._where(name)
                keys, values = decode_records(decompress(data, where), where, row_checksums=self._row_checksums)
                yield Piece(version, False, keys, values, identity_of(data))
            now = monotonic()
            if now - reported > _PROGRESS_AFTER_SECONDS:
                reported = now
                done = min(start + _READ_AHEAD, len(names))
                log.info("Loading %s: %d of %d deltas, %.0f s", self.folder.shown, done, len(names), now - started)

    def _where(self, name: str) -> str:
        return f"{self.folder.shown}/{name}"

    def append(self, version: int, changes: Mapping[bytes, bytes | None], ask: Callable[[], None]) -> str:
        """Publish the delta of ``version`` and return its identity.

        What lies above belongs to a future that did not happen, and is set aside once ``ask`` has
        said yes.
        """
        data = compress(encode_records(changes.keys(), changes.values()), self._codec)
        chain = self._known() if self._has_appended else self.refresh()
        # In the ordinary case the version is new, and nothing is listed.
        may_be_made_again = not self._has_appended or version <= chain.newest

        def ask_and_set_aside() -> None:
            ask()
            self._set_aside_above(version - 1)

        self.folder.publish(delta_name(version), data, ask_and_set_aside)
        self._has_appended = True
        chain.deltas.add(version)
        if may_be_made_again:
            # Maintenance of an earlier run may have been about to write a snapshot of the version that was replaced.
            # It looks at the delta after writing, we look for snapshots after replacing: one of us sees the other.
            self.refresh()
            self._set_aside_above(version - 1)
        return identity_of(data)

    def _set_aside_above(self, base: int) -> None:
        chain = self._known()
        for name in chain.above(base):
            log.warning("Setting aside %s: version %d is made again", self._where(name), base + 1)
            try:
                chain.aside.add(self.folder.set_aside(name))
            except MissingFile:
                log.info("%s is already gone", self._where(name))
            chain.discard(name)

    def start_at(self, version: int) -> None:
        """Give a state that begins empty at ``version`` a beginning of its chain."""
        self.write_snapshot(version, ())

    def write_snapshot(self, version: int, pairs: Iterable[tuple[bytes, bytes]]) -> int:
        """Publish everything in ``version``; returns the size of the file."""
        state = dict(pairs)
        data = compress(encode_records(state.keys(), state.values()), self._codec)
        self.folder.publish(snapshot_name(version), data)
        self._known().snapshots.add(version)
        return len(data)

    def withdraw_snapshot(self, version: int) -> None:
        """Take a snapshot back that turned out to be of a version that was replaced."""
        self.folder.remove([snapshot_name(version)])
        self._known().discard(snapshot_name(version))

    def deltas_since_snapshot(self, version: int) -> int:
        """How many deltas loading ``version`` takes."""
        return len(next(self._known().routes(version, self.folder.shown)).deltas)

    def clean(self, oldest: int) -> list[str]:
        """Remove the files that no version from ``oldest`` on needs; returns their names."""
        names = self.refresh().obsolete(oldest)
        self.folder.remove(names)
        for name in names:
            self._known().discard(name)
        return names
