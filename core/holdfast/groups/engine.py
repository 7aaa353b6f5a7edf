"""What an operator on groups is made of: a plan from the driver, and one engine per task that carries it out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.groups.keys import key_fields
from holdfast.ids import DEFAULT_STORE_NAME
from holdfast.rows import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    import pyarrow as pa

    from holdfast.contract.store import StateStore


@dataclass(frozen=True, slots=True)
class Moment:
    """Which micro-batch this is; a batch that runs again sees the same."""

    batch_id: int
    watermark_ms: int | None = None
    """The watermark, in milliseconds since 1970; None without one."""
    batch_time_ms: int | None = None
    """When Spark planned the batch, in milliseconds since 1970."""


@dataclass(frozen=True)
class StoreSchema:
    """The rows that a store holds."""

    key: pa.Schema
    value: pa.Schema


class Plan(ABC):
    """What to do with every partition; made on the driver, checked there, and pickled to the tasks."""

    stores: Mapping[str, StoreSchema]
    """The stores that a partition needs, by name."""

    output_schema: pa.Schema
    """What the operator puts out."""

    @abstractmethod
    def engine(self, memory_limit_bytes: int, spill_dir: str) -> Engine:
        """Make the engine of one task; beyond the limit its input goes to temporary files in `spill_dir`."""


class GroupPlan(Plan):
    """A plan by key: one store, whose keys are some columns of the input."""

    def __init__(self, keys: Sequence[str], input_schema: Any, state_schema: Any, output_schema: Any) -> None:
        """Take schemas in any form that `arrow_schema` accepts. Raises InvalidSchema for what cannot be a key."""
        self.input_schema: pa.Schema = arrow_schema(input_schema)
        self.key_schema = key_fields(self.input_schema, keys)
        self.state_schema: pa.Schema = arrow_schema(state_schema)
        self.output_schema = arrow_schema(output_schema)
        self.stores = {DEFAULT_STORE_NAME: StoreSchema(self.key_schema, self.state_schema)}


class Engine(ABC):
    """Carries out a plan for one partition of one micro-batch. Use it in a ``with`` block, or close it."""

    @abstractmethod
    def consume(self, batch: pa.RecordBatch) -> None:
        """Take one batch of the partition's input; nothing is read from state or written yet."""

    @abstractmethod
    def finish(self, stores: Mapping[str, StateStore], moment: Moment) -> Iterator[pa.RecordBatch]:
        """Compute from all that was consumed, and give the output, exactly of the plan's `output_schema`.

        State is read and written while the output is being taken: only when the iterator has ended, all is done.
        Committing is the caller's.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of memory and temporary files. May be called at any time, and again."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
