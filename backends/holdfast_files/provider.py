"""The default provider: the state in memory, the log in delta and snapshot files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast import BufferedStateStore, CheckpointedProvider, MetricKind, StateStoreCustomMetric
from holdfast_files.undo_map import UndoMap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

CURRENT_SIZE = StateStoreCustomMetric(
    "stateOnCurrentVersionSizeBytes", "estimated size of state only on current version", MetricKind.SIZE
)


class HDFSBackedStateStore(BufferedStateStore):
    """One version of the state, to make the next one from."""

    def commit(self) -> int:
        new_version = super().commit()
        log.info(
            "Committed version %d for %s to file %s/%d.delta", new_version, self, self._provider.location, new_version
        )
        return new_version

    def abort(self) -> None:
        super().abort()
        if not self.has_committed:
            log.info("Aborted version %d for %s", self.version + 1, self)

    def __repr__(self) -> str:
        which = f"op={self.id.operator_id},part={self.id.partition_id}"
        return f"HDFSStateStore[id=({which}),dir={self._provider.location}]"


class HDFSBackedStateStoreProvider(CheckpointedProvider):
    """Keeps recent versions in memory and every version in files, as Spark's provider of this name does."""

    store_class = HDFSBackedStateStore

    def make_map(self) -> UndoMap:
        self._undo_map = UndoMap(self.conf.max_versions_to_retain_in_memory)
        return self._undo_map

    @property
    def supported_custom_metrics(self) -> Sequence[StateStoreCustomMetric]:
        return (CURRENT_SIZE, *super().supported_custom_metrics)

    def custom_metric_values(self) -> Mapping[StateStoreCustomMetric, int]:
        return {**super().custom_metric_values(), CURRENT_SIZE: self._undo_map.size}
