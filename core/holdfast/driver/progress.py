"""What the stores of each operator reported with their commits, batch by batch."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from holdfast.ids import StateStoreId

BATCHES_KEPT: Final = 100
"""As many as Spark keeps of a query's progress."""

RUNS_KEPT: Final = 100
"""Runs whose progress can still be asked for; those that reported last."""

COMMON: Final = (
    "numRowsTotal",
    "numRowsUpdated",
    "numRowsRemoved",
    "allUpdatesTimeMs",
    "commitTimeMs",
    "memoryUsedBytes",
)
"""What Spark reports of every stateful operator; everything else is a custom metric."""


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """One operator in one batch, added up over its stores; the names are Spark's."""

    batch_id: int
    operator_id: int
    metrics: Mapping[str, int]
    """Each of ``COMMON``."""
    num_shuffle_partitions: int
    num_state_store_instances: int
    custom_metrics: Mapping[str, int]


@dataclass
class _Batch:
    stores: dict[StateStoreId, Mapping[str, int]] = field(default_factory=dict)
    """By store, so that a task that runs again counts once."""


class Progress:
    """The last batches of every run. No locks: the coordinator calls from one thread at a time."""

    def __init__(self) -> None:
        self._runs: OrderedDict[UUID, OrderedDict[int, _Batch]] = OrderedDict()

    def record(self, run_id: UUID, batch_id: int, store_id: StateStoreId, metrics: Mapping[str, int]) -> None:
        """A store committed."""
        batches = self._runs.setdefault(run_id, OrderedDict())
        self._runs.move_to_end(run_id)
        while len(self._runs) > RUNS_KEPT:
            self._runs.popitem(last=False)
        batches.setdefault(batch_id, _Batch()).stores[store_id] = metrics
        while len(batches) > BATCHES_KEPT:
            batches.popitem(last=False)

    def of_run(self, run_id: UUID) -> list[OperatorProgress]:
        """What is known of a run, oldest batch first, operators in their order."""
        return [
            _added_up(batch_id, operator_id, batch.stores)
            for batch_id, batch in self._runs.get(run_id, {}).items()
            for operator_id in sorted({store.operator_id for store in batch.stores})
        ]


def _added_up(batch_id: int, operator_id: int, stores: Mapping[StateStoreId, Mapping[str, int]]) -> OperatorProgress:
    ours = {store: metrics for store, metrics in stores.items() if store.operator_id == operator_id}
    total: Counter[str] = Counter()
    for metrics in ours.values():
        total.update(metrics)
    return OperatorProgress(
        batch_id,
        operator_id,
        {name: total.pop(name, 0) for name in COMMON},
        len({store.partition_id for store in ours}),
        len(ours),
        dict(sorted(total.items())),
    )
