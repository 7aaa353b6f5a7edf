"""Which stores of a batch have committed, and what to do when some have not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.errors import IncompleteBatch, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from holdfast.ids import StateStoreId

SHOWN_STORES: Final = 20
"""Missing stores that an error lists by name; the rest is counted."""


@dataclass
class _TrackedBatch:
    expected: frozenset[tuple[int, str, int]]
    """Operator id, store name, partition."""
    committed: set[tuple[int, str, int]] = field(default_factory=set)

    @property
    def missing(self) -> list[tuple[int, str, int]]:
        return sorted(self.expected - self.committed)


class CommitTracker:
    """The commits of tracked batches. No locks: the coordinator calls from one thread at a time."""

    def __init__(self) -> None:
        self._batches: dict[tuple[UUID, int], _TrackedBatch] = {}

    def start(self, run_id: UUID, batch_id: int, expected: Mapping[int, Mapping[str, int]]) -> None:
        """Expect these stores (partitions by store name by operator id) to commit in a batch.

        Asked again with the same stores, it changes nothing; with others, the batch has another plan than was said.
        """
        stores = frozenset(
            (operator_id, name, partition)
            for operator_id, partitions in expected.items()
            for name, number in partitions.items()
            for partition in range(number)
        )
        tracked = self._batches.setdefault((run_id, batch_id), _TrackedBatch(stores))
        if tracked.expected != stores:
            raise InvalidRequest(
                f"commits of batch {batch_id} in run {run_id} are tracked already, for {len(tracked.expected)} stores;"
                f" now {len(stores)} others are named: announce the stores of a batch once"
            )

    def record(self, run_id: UUID, batch_id: int, store_id: StateStoreId) -> None:
        """A store committed; of batches that are not tracked, nothing is kept."""
        tracked = self._batches.get((run_id, batch_id))
        if tracked is not None:
            tracked.committed.add((store_id.operator_id, store_id.store_name, store_id.partition_id))

    def is_tracked(self, run_id: UUID, batch_id: int) -> bool:
        """Whether the batch was started here and not forgotten."""
        return (run_id, batch_id) in self._batches

    def validate(self, run_id: UUID, batch_id: int, checkpoint_root: str | None) -> int:
        """Raise IncompleteBatch with the stores that did not commit; returns how many did."""
        tracked = self._batches.get((run_id, batch_id))
        if tracked is None:
            raise InvalidRequest(
                f"commits of batch {batch_id} in run {run_id} are not tracked; start tracking before the batch runs"
            )
        if tracked.missing:
            raise IncompleteBatch(_explained(tracked, batch_id, checkpoint_root))
        return len(tracked.expected)

    def forget_before(self, run_id: UUID, batch_id: int) -> None:
        """Forget the batches of a run that are older."""
        for key in [key for key in self._batches if key[0] == run_id and key[1] < batch_id]:
            del self._batches[key]

    def forget_run(self, run_id: UUID) -> None:
        """Forget the batches of a run."""
        for key in [key for key in self._batches if key[0] == run_id]:
            del self._batches[key]


def _explained(tracked: _TrackedBatch, batch_id: int, checkpoint_root: str | None) -> str:
    missing = tracked.missing
    named = "; ".join(
        f"operator {operator_id}, store {name}, partition {partition}"
        for operator_id, name, partition in missing[:SHOWN_STORES]
    )
    more = f"; and {len(missing) - SHOWN_STORES} more" if len(missing) > SHOWN_STORES else ""
    return (
        f"Spark finished batch {batch_id}, but {len(missing)} of its {len(tracked.expected)} stores did not commit:"
        f" {named}{more}. Most likely an action in foreachBatch did not read every partition (limit, take, show, first,"
        " isEmpty): let one action read all of the batch, for example by writing it."
        f" {repair(batch_id, checkpoint_root)}"
    )


def repair(batch_id: int, checkpoint_root: str | None) -> str:
    """What to do about a batch that is not complete."""
    # The state of a query is in <checkpoint>/state, and the command wants the checkpoint.
    checkpoint = "CHECKPOINT" if checkpoint_root is None else checkpoint_root.rstrip("/").removesuffix("/state")
    if batch_id == 0:
        return f"It was the first batch, so there is none to go back to: start the query anew, without {checkpoint}."
    # Back to the batch before: Spark then runs this one again, on the same input.
    return (
        f"Then stop the query, look at what `holdfast rollback {checkpoint} --to {batch_id - 1}` would remove, run it"
        f" with --yes, and start the query: Spark runs batch {batch_id} again."
    )
