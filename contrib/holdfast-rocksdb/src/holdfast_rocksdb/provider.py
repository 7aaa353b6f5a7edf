"""The provider: RocksDB in front of the log."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from holdfast import ByteSize, CheckpointedProvider, MetricKind, Seconds, Settings, StateStoreCustomMetric, setting
from holdfast_rocksdb.key_order import Orders
from holdfast_rocksdb.place import LocalPlace, sweep
from holdfast_rocksdb.rocks_map import RocksMap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast import StateStoreId

log = logging.getLogger(__name__)

FILE_SIZE = StateStoreCustomMetric("rocksdbSstFileSize", "size of all SST files", MetricKind.SIZE)
DISCARDED = StateStoreCustomMetric("rocksdbNumDiscarded", "local databases thrown away because they were damaged")


@dataclass(frozen=True, kw_only=True)
class RocksDBSettings(Settings):
    """The settings of this backend."""

    prefix: ClassVar[str] = "spark.holdfast.rocksdb."

    local_dir: str | None = setting(
        None, "Folder for databases that outlive the process; not set: a temporary one that goes with the store."
    )
    block_cache_size: ByteSize = setting(
        ByteSize(8 << 20), "Memory for blocks read from disk, per store.", minimum=1 << 16
    )
    write_buffer_size: ByteSize = setting(
        ByteSize(16 << 20), "Memory for changes before they are written out in order, per store.", minimum=1 << 16
    )
    keep_unused: Seconds = setting(
        Seconds(86400.0), "How long a database in localDir that no store uses is kept for its return."
    )


class RocksDBStateStoreProvider(CheckpointedProvider):
    """Keeps recent versions in RocksDB on local disk and every version in the log."""

    settings: ClassVar = RocksDBSettings

    def make_map(self) -> RocksMap:
        settings = RocksDBSettings.parse(self.conf.backend_confs)
        if settings.local_dir is None:
            folder = Path(tempfile.mkdtemp(prefix="holdfast-rocksdb-"))
        else:
            folder = local_folder(self.store_id, settings.local_dir, self.key_index_ordinal)
        place = LocalPlace(
            folder,
            block_cache_size=settings.block_cache_size,
            write_buffer_size=settings.write_buffer_size,
            keep=settings.local_dir is not None,
        )
        self._swept = None if settings.local_dir is None else Path(settings.local_dir)
        self._keep_unused = settings.keep_unused
        orders = Orders(self.key_schema, self.key_index_ordinal)
        self._rocks_map = RocksMap(place, self.conf.max_versions_to_retain_in_memory, orders)
        return self._rocks_map

    def do_maintenance(self) -> None:
        super().do_maintenance()
        removed = 0 if self._swept is None else sweep(self._swept, self._keep_unused)
        if removed:
            log.info("Removed %d RocksDB databases in %s that no store uses", removed, self._swept)

    @property
    def supported_custom_metrics(self) -> Sequence[StateStoreCustomMetric]:
        return (FILE_SIZE, DISCARDED, *super().supported_custom_metrics)

    def custom_metric_values(self) -> Mapping[StateStoreCustomMetric, int]:
        own = {FILE_SIZE: self._rocks_map.file_size(), DISCARDED: self._rocks_map.discarded}
        return {**super().custom_metric_values(), **own}


def local_folder(store: StateStoreId, local_dir: str, key_index_ordinal: int | None = None) -> Path:
    """Where the databases of ``store`` are below ``local_dir``, apart from those of all others and of other indexes."""
    query = hashlib.sha256(f"{store.checkpoint_root}\0{key_index_ordinal}".encode()).hexdigest()[:16]
    return Path(local_dir, query, str(store.operator_id), str(store.partition_id), store.store_name)
