"""Built-in aggregates by key, without Python code per row or key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import InvalidSchema
from holdfast.groups.accumulators import accumulator
from holdfast.groups.buckets import MAX_BYTES_HELD, Buckets, whole
from holdfast.groups.engine import Engine, GroupPlan
from holdfast.groups.grouping import Groups, group
from holdfast.groups.input import InputColumns
from holdfast.groups.keyed_state import KeyedState
from holdfast.groups.keys import key_fields
from holdfast.ids import DEFAULT_STORE_NAME
from holdfast.rows import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.contract.store import StateStore
    from holdfast.groups.aggregates import Aggregate
    from holdfast.groups.engine import Moment
    from holdfast.groups.keyed_state import Piece

_ROWS_AT_ONCE = 65_536
"""Rows aggregated together: many, so that fewer states are made of them."""


class AggregatePlan(GroupPlan):
    """Aggregates over the whole stream by key; puts out the new values of every key that has rows in the batch."""

    def __init__(
        self, keys: Sequence[str], input_schema: Any, aggregates: Mapping[str, Aggregate], *, ansi: bool
    ) -> None:
        """Take the aggregates by the names of their output columns; `ansi`: an overflow is an error."""
        if not aggregates:
            raise InvalidSchema("there is nothing to compute; name at least one aggregate: agg(n=hf.count())")
        schema = arrow_schema(input_schema)
        self.accumulators = [accumulator(name, each, schema, ansi=ansi) for name, each in aggregates.items()]
        state = pa.schema([field for each in self.accumulators for field in each.state])
        output = pa.schema([*key_fields(schema, keys), *(each.output for each in self.accumulators)])
        super().__init__(keys, schema, state, output)
        for columns in (output, pa.schema([*self.key_schema, *state])):
            twice = sorted({name for name in columns.names if columns.names.count(name) > 1})
            if twice:
                raise InvalidSchema(f"two columns would be named {', '.join(twice)}; give an aggregate another name")

    def engine(self, memory_limit_bytes: int, spill_dir: str) -> Engine:
        return _AggregateEngine(self, memory_limit_bytes, spill_dir)


class _AggregateEngine(Engine):
    def __init__(self, plan: AggregatePlan, memory_limit_bytes: int, spill_dir: str) -> None:
        self._plan = plan
        keys = plan.key_schema.names
        wanted = {*keys, *(each.aggregate.column for each in plan.accumulators if each.aggregate.column is not None)}
        self._input = InputColumns(plan.input_schema, keys, wanted)
        self._partial_schema = pa.schema([*plan.key_schema, *plan.state_schema])
        self._partials = Buckets(memory_limit_bytes, spill_dir, plan.key_schema, self._merged)
        self._rows: list[pa.RecordBatch] = []
        self._row_count = self._row_bytes = 0
        self._max_row_bytes = min(memory_limit_bytes, MAX_BYTES_HELD)

    def consume(self, batch: pa.RecordBatch) -> None:
        rows = self._input.fit(batch)
        self._rows.append(rows)
        self._row_count += rows.num_rows
        self._row_bytes += rows.nbytes
        if self._row_count >= _ROWS_AT_ONCE or self._row_bytes > self._max_row_bytes:
            self._fold()

    def finish(self, stores: Mapping[str, StateStore], moment: Moment) -> Iterator[pa.RecordBatch]:
        self._fold()
        state = KeyedState(stores[DEFAULT_STORE_NAME], self._plan.stores[DEFAULT_STORE_NAME])
        for partials in self._partials.drain():
            fresh = self._merged(partials)
            for piece in state.read(fresh.select(self._plan.key_schema.names)):
                updated = self._updated(piece, fresh.slice(piece.first, len(piece)))
                states = updated.columns[len(self._plan.key_schema) :]
                state.put(piece.keys, pa.RecordBatch.from_arrays(states, schema=self._plan.state_schema))
                yield self._results(updated)

    def close(self) -> None:
        self._rows = []
        self._partials.close()

    def _fold(self) -> None:
        """Make states of the rows that have come."""
        if not self._row_count:
            return
        rows = whole(self._rows)
        self._rows, self._row_count, self._row_bytes = [], 0, 0
        # What stands for a whole row where rows are counted is never null.
        every_row = pa.array(np.ones(rows.num_rows, np.bool_))
        columns = [rows.column(name) for name in self._plan.key_schema.names]
        for each in self._plan.accumulators:
            name = each.aggregate.column
            columns += each.lift(every_row if name is None else rows.column(name))
        self._partials.add(self._merged(self._partial(columns)))

    def _merged(self, partials: pa.RecordBatch) -> pa.RecordBatch:
        """Make one partial of those of each key."""
        keys = partials.columns[: len(self._plan.key_schema)]
        groups = group(keys, list(self._plan.key_schema))
        if groups.count == partials.num_rows:
            return partials
        states = self._merged_states(partials.columns[len(keys) :], groups)
        first = pa.array(groups.first_rows)
        return self._partial([*(key.take(first) for key in keys), *states])

    def _updated(self, piece: Piece, fresh: pa.RecordBatch) -> pa.RecordBatch:
        """Merge stored states with new ones, which come later in time."""
        if not len(piece.known):
            return fresh
        keys = len(self._plan.key_schema)
        both = [pa.concat_arrays(pair) for pair in zip(piece.states.columns, fresh.columns[keys:], strict=True)]
        groups = Groups(np.concatenate([piece.known, np.arange(len(piece))]), len(piece))
        return self._partial([*fresh.columns[:keys], *self._merged_states(both, groups)])

    def _merged_states(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        merged: list[pa.Array] = []
        for each in self._plan.accumulators:
            merged += each.merge(states[len(merged) : len(merged) + len(each.state)], groups)
        return merged

    def _results(self, updated: pa.RecordBatch) -> pa.RecordBatch:
        at = len(self._plan.key_schema)
        columns = updated.columns[:at]
        for each in self._plan.accumulators:
            columns.append(each.result(updated.columns[at : at + len(each.state)]))
            at += len(each.state)
        return pa.RecordBatch.from_arrays(columns, schema=self._plan.output_schema)

    def _partial(self, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, schema=self._partial_schema)
