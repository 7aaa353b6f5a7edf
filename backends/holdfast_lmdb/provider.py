"""The provider: state in LMDB on local disk, the log in delta and snapshot files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from holdfast import CheckpointedProvider, MetricKind, StateStoreCustomMetric
from holdfast.errors import HoldfastError
from holdfast_lmdb.environment import Environment
from holdfast_lmdb.key_order import Orders
from holdfast_lmdb.lmdb_map import LmdbMap
from holdfast_lmdb.place import Place, environment_name, sweep
from holdfast_lmdb.settings import LmdbSettings
from holdfast_lmdb.sharing import shared_maps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

log = logging.getLogger(__name__)

USED = StateStoreCustomMetric("lmdbMapUsedBytes", "size of the local LMDB files", MetricKind.SIZE)
PAGES = StateStoreCustomMetric("lmdbPages", "pages of the local LMDB files")
OVERLAY = StateStoreCustomMetric("lmdbOverlayBytes", "changes in memory that are not in LMDB yet", MetricKind.SIZE)
FLUSHES = StateStoreCustomMetric("lmdbFlushes", "times that changes in memory were written to LMDB")
REBUILDS = StateStoreCustomMetric("lmdbRebuilds", "times that a local environment was filled from the log")


class LmdbStateStoreProvider(CheckpointedProvider):
    """Keeps the state in LMDB on the executor's disk and every version in Spark's files."""

    settings = LmdbSettings

    keys_in_part: ClassVar[int] = 4096
    """Keys that are changed in one transaction of LMDB: it holds the page of each in memory."""

    def make_map(self) -> LmdbMap:
        settings = LmdbSettings.parse(self.conf.backend_confs)
        self._folder = settings.folder().absolute()
        self._keep_unused = settings.keep_unused
        name = environment_name(self.location, self.key_schema.remove_metadata(), self.key_index_ordinal)
        self._map_name = str(self._folder / name)

        def make() -> LmdbMap:
            place = Place.take(self._folder, name)
            try:
                orders = Orders.of(self.key_schema, self.key_index_ordinal)
                environment = Environment(place, self.location, orders, settings.max_size, self.keys_in_part)
                return LmdbMap(environment, orders)
            except BaseException:
                place.leave()
                raise

        self._lmdb = shared_maps.join(self._map_name, make)
        with self._lmdb.lock:
            # The newest run decides.
            self._lmdb.environment.max_size = settings.max_size
            self._lmdb.overlay_limit = settings.overlay_size
            self._lmdb.keep = self.conf.max_versions_to_retain_in_memory
        return self._lmdb

    def map_lock(self) -> AbstractContextManager[Any]:
        return self._lmdb.lock

    def do_maintenance(self) -> None:
        super().do_maintenance()
        try:
            # Rather now than in a commit, and a store that is idle then holds nothing in memory.
            with self._lmdb.lock:
                self._lmdb.flush(self._lmdb.newest)
        except HoldfastError:
            # The changes stay in memory, and the commit that needs their place will say so.
            log.warning("Error writing recent changes of %s to LMDB", self, exc_info=True)
        removed = sweep(self._folder, self._keep_unused)
        if removed:
            log.info("Removed %d LMDB environments in %s that no store uses", removed, self._folder)

    def close(self) -> None:
        shared_maps.leave(self._map_name)

    @property
    def supported_custom_metrics(self) -> Sequence[StateStoreCustomMetric]:
        return (USED, PAGES, OVERLAY, FLUSHES, REBUILDS, *super().supported_custom_metrics)

    def custom_metric_values(self) -> Mapping[StateStoreCustomMetric, int]:
        environment = self._lmdb.environment
        return {
            **super().custom_metric_values(),
            USED: environment.used_bytes(),
            PAGES: environment.used_pages(),
            OVERLAY: self._lmdb.overlay_size(),
            FLUSHES: self._lmdb.flushes,
            REBUILDS: self._lmdb.rebuilds,
        }
