"""The provider: RocksDB in front of the log."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from holdfast import ByteSize, CheckpointedProvider, MetricKind, Settings, StateStoreCustomMetric, setting
from holdfast_rocksdb.place import LocalPlace
from holdfast_rocksdb.rocks_map import RocksMap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast import StateStoreId

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


class RocksDBStateStoreProvider(CheckpointedProvider):
    """Keeps recent versions in RocksDB on local disk and every version in the log."""

    settings: ClassVar = RocksDBSettings

    def make_map(self) -> RocksMap:
        settings = RocksDBSettings.parse(self.conf.backend_confs)
        if settings.local_dir is None:
            folder = Path(tempfile.mkdtemp(prefix="holdfast-rocksdb-"))
        else:
            folder = local_folder(self.store_id, settings.local_dir)
        place = LocalPlace(
            folder,
            block_cache_size=settings.block_cache_size,
            write_buffer_size=settings.write_buffer_size,
            keep=settings.local_dir is not None,
        )
        self._rocks_map = RocksMap(place, self.conf.max_versions_to_retain_in_memory)
        return self._rocks_map

    @property
    def supported_custom_metrics(self) -> Sequence[StateStoreCustomMetric]:
        return (FILE_SIZE, DISCARDED, *super().supported_custom_metrics)

    def custom_metric_values(self) -> Mapping[StateStoreCustomMetric, int]:
        own = {FILE_SIZE: self._rocks_map.file_size(), DISCARDED: self._rocks_map.discarded}
        return {**super().custom_metric_values(), **own}


def local_folder(store: StateStoreId, local_dir: str) -> Path:
    """Where the databases of ``store`` are below ``local_dir``, apart from those of all other stores."""
    query = hashlib.sha256(store.checkpoint_root.encode()).hexdigest()[:16]
    return Path(local_dir, query, str(store.operator_id), str(store.partition_id), store.store_name)
