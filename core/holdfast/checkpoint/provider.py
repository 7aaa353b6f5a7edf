"""The base for a backend that is a map in front of the log."""

from __future__ import annotations

import dataclasses
import logging
from abc import ABC, abstractmethod
from collections import Counter
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.checkpoint.log import CheckpointLog, apply_changes
from holdfast.checkpoint.schema_files import StateSchema, check_compatible, read_state_schema, write_state_schema
from holdfast.checkpoint.storage import Folder
from holdfast.contract.buffered import BufferedStateStore, Published, StateView
from holdfast.contract.capabilities import Capability
from holdfast.contract.metrics import MetricKind, StateStoreCustomMetric
from holdfast.contract.versioned import VersionedProvider
from holdfast.errors import CorruptState, Fenced, HoldfastError, InvalidRequest, MissingVersion
from holdfast.ids import check_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.checkpoint.log import Piece
    from holdfast.contract.buffered import Changes
    from holdfast.contract.store import Pair
    from holdfast.ids import StateStoreId

log = logging.getLogger(__name__)

_NOT_HELD = "not held"
"""Equal to no identity."""

CACHE_HITS = StateStoreCustomMetric("loadedMapCacheHitCount", "opened versions that were already loaded")
CACHE_MISSES = StateStoreCustomMetric("loadedMapCacheMissCount", "opened versions that had to be loaded")
REPAIRED = StateStoreCustomMetric("numSnapshotsAutoRepaired", "damaged snapshots that an older one replaced")
CATCH_UPS = StateStoreCustomMetric("numCatchUps", "times that deltas brought a loaded version to a later one")
DELTAS_READ = StateStoreCustomMetric("numDeltasRead", "delta files read while loading or catching up")
LOAD_TIME = StateStoreCustomMetric("loadTimeMs", "time spent loading versions", MetricKind.TIMING)
SNAPSHOT_TIME = StateStoreCustomMetric("snapshotTimeMs", "time spent writing snapshots", MetricKind.TIMING)
SNAPSHOT_BYTES = StateStoreCustomMetric("snapshotBytesWritten", "bytes of snapshots written", MetricKind.SIZE)


class StateMap(ABC):
    """The part that a backend writes: recent versions of one store, somewhere close.

    The log is the truth; a map may be lost or thrown away at any time. It holds a newest version
    and, by whatever means, a few before it. Calls are never concurrent, except those on views.
    """

    @abstractmethod
    def identities(self) -> Mapping[int, str | None]:
        """The versions that ``view`` can show, with their identities."""

    @abstractmethod
    def reset(self, version: int, identity: str | None, pairs: Iterable[Pair]) -> None:
        """Forget everything and hold ``version`` with these pairs."""

    def load(self, version: int, pieces: Iterable[Piece]) -> None:
        """Forget everything and hold ``version``, which these pieces of the log make, one after the other.

        The last of them has the version's identity. Override this where the state need not be in memory as a whole.
        If a piece fails to come, what was held before is held still, or nothing is.
        """
        state, identity = collected(pieces)
        self.reset(version, identity, state.items())

    @abstractmethod
    def apply(self, version: int, identity: str | None, changes: Changes) -> int:
        """Make ``version`` from ``version - 1``, which ``view`` can show; returns its number of keys.

        Held versions from ``version`` on are forgotten.
        """

    @abstractmethod
    def view(self, version: int) -> StateView:
        """Show a held version; the view stays right whatever is applied later."""

    @abstractmethod
    def memory_used_bytes(self) -> int:
        """Memory that all of it takes."""

    def close(self) -> None:
        """Let go of everything."""


def collected(pieces: Iterable[Piece]) -> tuple[dict[bytes, bytes], str | None]:
    """The state that pieces of the log make, and its identity."""
    state: dict[bytes, bytes] = {}
    identity: str | None = None
    for piece in pieces:
        if piece.is_snapshot:
            state.update(zip(piece.keys, piece.values, strict=True))  # type: ignore[arg-type]  # none is removed
        else:
            apply_changes(state, piece.keys, piece.values)
        identity = piece.identity
    return state, identity


class CheckpointedProvider(VersionedProvider):
    """Does versions, commit, abort, snapshots, clean-up and recovery; a backend makes the ``StateMap``."""

    capabilities: ClassVar = frozenset(
        {
            Capability.LOG,
            Capability.TIME_TRAVEL,
            Capability.RANGE_SCAN,
            Capability.PREFIX_SCAN,
            Capability.LATE_START,
        }
    )

    fault_points: ClassVar[tuple[str, ...]] = (*VersionedProvider.fault_points, "publish.written", "publish.visible")

    @abstractmethod
    def make_map(self) -> StateMap:
        """An empty map that holds version 0, or one from before: the base compares what it holds with the log."""

    def map_lock(self) -> AbstractContextManager[Any]:
        """What is held during every call on the map, reentrant; providers that share a map share its lock."""
        return RLock()

    def open(self) -> None:
        self._log = CheckpointLog(self._folder_of(self.store_id), self.conf.compression_codec)
        self._unwritten_schema = self._check_schema()
        self._map = self.make_map()
        self._lock = self.map_lock()
        self._final = 0
        self._counts: Counter[StateStoreCustomMetric] = Counter()

    def _check_schema(self) -> StateSchema | None:
        """Compare with the schema that the state has; returns the one to write if it has none and that is ours to do.

        Like Spark's, the schema of a store is in the folder of its partition 0.
        """
        schema = StateSchema(self.key_schema, self.value_schema)
        stored = read_state_schema(self._first_partition())
        if stored is not None:
            check_compatible(stored, schema, self._first_partition().shown)
        elif self.store_id.partition_id == 0:
            return schema.all_nullable()
        return None

    def _first_partition(self) -> Folder:
        return self._folder_of(dataclasses.replace(self.store_id, partition_id=0))

    def _folder_of(self, store_id: StateStoreId) -> Folder:
        location = store_id.store_checkpoint_location()
        return Folder.open(location, self.fs_options, adapters=self.filesystem_adapters)

    @property
    def location(self) -> str:
        return self._log.folder.shown

    def get_store(self, version: int, identity: str | None = None) -> BufferedStateStore:
        store = super().get_store(version, identity)
        # The batch that made this version is over: from now on it does not change any more.
        self._final = version
        return store

    def open_view(self, version: int) -> StateView:
        return self._open(version, None)

    def open_known(self, version: int, identity: str) -> StateView:
        return self._open(version, identity)

    def _open(self, version: int, identity: str | None) -> StateView:
        with self._lock:
            if self._holds(version, identity):
                self._counts[CACHE_HITS] += 1
                return self._held_view(version)
            self._counts[CACHE_MISSES] += 1
            started = monotonic()
            try:
                return self._load(version)
            finally:
                self._counts[LOAD_TIME] += int((monotonic() - started) * 1000)

    def _held_view(self, version: int) -> StateView:
        view = self._map.view(version)
        view.identity = self._map.identities()[version]
        return view

    def _holds(self, version: int, identity: str | None = None) -> bool:
        """Whether the map shows ``version`` as it was committed last: as ``identity``, if the caller knows it."""
        held = self._map.identities()
        if version == 0 or version not in held:
            return version in held
        if identity is None:
            # Another executor may have made this version again since: its number would be the same.
            identity = self._log.identity(version)
        return identity is not None and held[version] == identity

    def _load(self, version: int) -> StateView:
        newest = max(self._map.identities(), default=0)
        if self._should_catch_up(newest, version) and self._catch_up(newest, version):
            return self._held_view(version)
        if version < newest and self._holds(newest):
            # A look into the past does not cost the present its place in memory.
            return HistoricalView(*collected(self._pieces(version)))
        self._map.load(version, self._pieces(version))
        return self._held_view(version)

    def _should_catch_up(self, newest: int, version: int) -> bool:
        """Whether the deltas since the held version are a better way than a snapshot and those since it.

        From nothing they are not: loading takes the same deltas, and knows how to replace a damaged snapshot.
        """
        if not 0 < newest < version or not self._holds(newest):
            return False
        behind = version - newest
        if behind <= self.conf.min_deltas_for_snapshot:
            return True
        return behind <= len(self._log.shortest_route(version).deltas)

    def _catch_up(self, newest: int, version: int) -> bool:
        """Go from one version to a later one by the deltas between; False if these do not lead there."""
        try:
            for piece in self._log.deltas(newest + 1, version, self._map.identities()[newest]):
                self._counts[DELTAS_READ] += 1
                self._map.apply(piece.version, piece.identity, dict(zip(piece.keys, piece.values, strict=True)))
        except CorruptState as error:
            log.warning("%s cannot go from version %d to %d by deltas: %s", self, newest, version, error)
            return False
        self._counts[CATCH_UPS] += 1
        return True

    def _pieces(self, version: int) -> Iterator[Piece]:
        """The whole content of a version, from the log; if it is not there, that shows at once."""
        return self._counted(self._log.load(version) if version else iter(()))

    def _counted(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self._counts[DELTAS_READ] += not piece.is_snapshot
            yield piece

    def publish(self, base: int, view: StateView, changes: Changes, ask: Callable[[], None]) -> Published:
        with self._lock:
            held = self._map.identities()
            if base in held and held[base] != view.identity:
                # A delta on top of the new base would be a mixture. That another executor replaces the base is the
                # guard's to prevent: looking into the log at every commit would not close the gap, only narrow it.
                raise Fenced(f"version {base} of {self.location} was made again while this store was open")

        def ask_and_write_schema() -> None:
            ask()
            self._write_schema()

        # Outside the lock: others may read while this waits for the storage and the guard.
        identity = self._log.append(base + 1, changes, view.identity, ask_and_write_schema)
        with self._lock:
            if self._map.identities().get(base, _NOT_HELD) == view.identity:
                return Published(self._map.apply(base + 1, identity, changes), identity)
            state = dict(view.entries())
            apply_changes(state, changes.keys(), changes.values())
            self._map.reset(base + 1, identity, state.items())
            return Published(len(state), identity)

    def _write_schema(self) -> None:
        """Before the first version, so that there is no state whose schema nobody knows."""
        if self._unwritten_schema is not None:
            write_state_schema(self._first_partition(), self._unwritten_schema)
            self._unwritten_schema = None

    def start_at(self, version: int) -> None:
        check_number("version", version)
        newest = self._log.refresh().newest
        if version and not newest:
            self._write_schema()
            self._log.start_at(version)
        elif not self._is_empty(version):
            raise InvalidRequest(
                f"{self.location} has state already, up to version {newest}: it cannot begin empty at version"
                f" {version}; give the operator another name, or remove its old state"
            )

    def _is_empty(self, version: int) -> bool:
        try:
            return not collected(self._pieces(version))[0]
        except MissingVersion:
            return False

    def do_maintenance(self) -> None:
        """Write a snapshot if the chain has grown long, and remove what is no longer needed."""
        for step in (self._snapshot, self._clean):
            try:
                step()
            except HoldfastError:
                # The log is as good as before, and the next run tries again.
                log.warning("Error performing snapshot and cleaning up %s", self, exc_info=True)

    def _snapshot(self) -> None:
        with self._lock:
            version = self._final
            if not version or not self._holds(version):
                return
            if len(self._log.shortest_route(version).deltas) <= self.conf.min_deltas_for_snapshot:
                return
            view = self._held_view(version)
        started = monotonic()
        try:
            size = self._log.write_snapshot(version, view.entries())
            if self._log.identity(version) != view.identity:
                # Made again meanwhile, by a later run: see CheckpointLog.append.
                self._log.withdraw_snapshot(version)
                return
        finally:
            view.close()
        self._counts[SNAPSHOT_BYTES] += size
        self._counts[SNAPSHOT_TIME] += int((monotonic() - started) * 1000)
        self.observer.snapshot_written(self.store_id, version, size)
        log.info("Written snapshot of version %d of %s, %d bytes", version, self, size)

    def _clean(self) -> None:
        oldest = self._final - self.conf.min_versions_to_retain + 1
        if oldest > 0:
            removed = self._log.clean(oldest)
            if removed:
                log.debug("Removed %d files of %s that no version from %d on needs", len(removed), self, oldest)

    def close(self) -> None:
        self._map.close()

    def memory_used_bytes(self) -> int:
        return self._map.memory_used_bytes()

    @property
    def supported_custom_metrics(self) -> Sequence[StateStoreCustomMetric]:
        return (CACHE_HITS, CACHE_MISSES, REPAIRED, CATCH_UPS, DELTAS_READ, LOAD_TIME, SNAPSHOT_TIME, SNAPSHOT_BYTES)

    def custom_metric_values(self) -> Mapping[StateStoreCustomMetric, int]:
        counts = {metric: self._counts[metric] for metric in self.supported_custom_metrics}
        return {**counts, REPAIRED: self._log.snapshots_repaired}

    def __repr__(self) -> str:
        which = f"op={self.store_id.operator_id},part={self.store_id.partition_id}"
        return f"{type(self).__name__}[id=({which}),dir={self.location}]"


class HistoricalView(StateView):
    """A version that the map does not hold, loaded from the log for one look."""

    def __init__(self, state: dict[bytes, bytes], identity: str | None) -> None:
        self._state = state
        self.identity = identity

    def get(self, key: bytes) -> bytes | None:
        return self._state.get(key)

    def entries(self) -> Iterator[Pair]:
        return iter(self._state.items())

    def num_keys(self) -> int:
        return len(self._state)
