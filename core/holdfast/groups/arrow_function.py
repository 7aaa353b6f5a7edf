"""A function on Arrow tables, many keys at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest, InvalidSchema
from holdfast.groups.buckets import Buckets
from holdfast.groups.engine import Engine, GroupPlan
from holdfast.groups.failure import function_failed, name_of
from holdfast.groups.grouping import group
from holdfast.groups.input import InputColumns
from holdfast.groups.keyed_state import KeyedState
from holdfast.groups.keys import normal_keys
from holdfast.groups.output import Tabular, fit
from holdfast.ids import DEFAULT_STORE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.contract.store import StateStore
    from holdfast.groups.engine import Moment
    from holdfast.rows.words import Ints

ArrowFunction: TypeAlias = "Callable[[pa.Table, pa.Table], tuple[Tabular | None, Tabular | None]]"

EXISTS = "exists"
"""The column of states that says whether a key has one."""

REMOVE = "remove"
"""The column of new states that says which are to be removed."""

_EXISTS_FIELD = pa.field(EXISTS, pa.bool_(), nullable=False)
_REMOVE_FIELD = pa.field(REMOVE, pa.bool_(), nullable=False)


class ArrowFunctionPlan(GroupPlan):
    """Calls ``fn(rows, states)`` with the rows of many keys, all rows of a key in one call.

    ``rows`` is a `pyarrow.Table` of the input. ``states`` has one row for each key in it: the key columns, the state
    columns (null where there is no state) and the boolean ``exists``. The function returns ``(new_states, output)``,
    either of which may be None.

    ``new_states`` has the key columns and the state columns. With a boolean column ``remove`` too, a row in which that
    is true removes the state of its key. ``exists`` is ignored, so that ``states`` with other values will do. Keys that
    are not in it keep their state. Each of its keys must be one of ``states``, and occur once.
    """

    def __init__(
        self, keys: Sequence[str], input_schema: Any, state_schema: Any, output_schema: Any, fn: ArrowFunction
    ) -> None:
        super().__init__(keys, input_schema, state_schema, output_schema)
        self.fn = fn
        names = [*self.key_schema.names, *self.state_schema.names, EXISTS, REMOVE]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidSchema(
                f"tables of states have the columns {names}, and {', '.join(twice)} twice; rename the state column"
            )

    def engine(self, memory_limit_bytes: int, spill_dir: str) -> Engine:
        return _ArrowFunctionEngine(self, memory_limit_bytes, spill_dir)


class _ArrowFunctionEngine(Engine):
    def __init__(self, plan: ArrowFunctionPlan, memory_limit_bytes: int, spill_dir: str) -> None:
        self._plan = plan
        self._name = name_of(plan.fn)
        self._input = InputColumns(plan.input_schema, plan.key_schema.names)
        self._rows = Buckets(memory_limit_bytes, spill_dir, plan.key_schema)
        # Where there is no state, or none any more, its columns are null, whatever they may hold otherwise.
        self._states = [field.with_nullable(True) for field in plan.state_schema]
        self._states_schema = pa.schema([*plan.key_schema, *self._states, _EXISTS_FIELD])

    def consume(self, batch: pa.RecordBatch) -> None:
        self._rows.add(self._input.fit(batch))

    def finish(self, stores: Mapping[str, StateStore], moment: Moment) -> Iterator[pa.RecordBatch]:
        state = KeyedState(stores[DEFAULT_STORE_NAME], self._plan.stores[DEFAULT_STORE_NAME])
        for batch in self._rows.drain():
            if batch.num_rows:
                yield from self._call(batch, state)

    def close(self) -> None:
        self._rows.close()

    def _call(self, batch: pa.RecordBatch, state: KeyedState) -> Iterator[pa.RecordBatch]:
        key_columns = batch.select(self._plan.key_schema.names)
        groups = group(key_columns.columns, list(self._plan.key_schema))
        known, states = self._read(key_columns.take(pa.array(groups.first_rows)), state)
        try:
            returned = self._plan.fn(pa.Table.from_batches([batch]), states)
        except Exception as error:
            raise function_failed(self._plan.fn, f"on the rows of {groups.count:,} keys", error) from error
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise InvalidRequest(
                f"{self._name} returns a tuple, (new_states, output), either of which may be None; "
                f"it returned {type(returned).__name__}"
            )
        new_states, output = returned
        if new_states is not None:
            self._write(new_states, known, state)
        if output is not None:
            yield from fit(output, self._plan.output_schema, f"the output of {self._name}").to_batches()

    def _read(self, keys: pa.RecordBatch, state: KeyedState) -> tuple[pa.Array, pa.Table]:
        """Return the encoded keys and the table of their states."""
        encoded, tables = [], []
        for piece in state.read(keys):
            row_of = np.full(len(piece), -1)
            row_of[piece.known] = np.arange(len(piece.known))
            rows = pa.array(row_of, mask=row_of < 0)
            columns = keys.slice(piece.first, len(piece)).columns
            columns += [column.take(rows) for column in piece.states.columns]
            tables.append(pa.RecordBatch.from_arrays([*columns, rows.is_valid()], schema=self._states_schema))
            encoded.append(piece.keys)
        return pa.concat_arrays(encoded), pa.Table.from_batches(tables)

    def _write(self, new_states: Tabular, known: pa.Array, state: KeyedState) -> None:
        what = f"the new states of {self._name}"
        if isinstance(new_states, pa.RecordBatch):
            new_states = pa.Table.from_batches([new_states])
        columns = new_states.schema.names if isinstance(new_states, pa.Table) else []
        if EXISTS in columns:
            new_states = new_states.drop_columns([EXISTS])
        flags = [_REMOVE_FIELD] if REMOVE in columns else []
        fitted = fit(new_states, pa.schema([*self._plan.key_schema, *self._states, *flags]), what)
        keys = self._known_keys(fitted, known, state, what)
        if flags:
            # In one chunk: filtering by several would make chunks of the keys, which stores do not take.
            removed = fitted[REMOVE].combine_chunks()
            kept = pc.invert(removed)
            state.remove(keys.filter(removed))
            keys, fitted = keys.filter(kept), fitted.filter(kept)
        state.put(keys, fitted.select(self._plan.state_schema.names))

    def _known_keys(self, new_states: pa.Table, known: pa.Array, state: KeyedState, what: str) -> pa.Array:
        """Encode the keys of new states, each of which must be known and occur once."""
        schema = self._plan.key_schema
        columns = [normal_keys(new_states[name].combine_chunks()) for name in schema.names]
        keys = state.encode_keys(pa.RecordBatch.from_arrays(columns, schema=schema))
        unknown = pc.is_null(pc.index_in(keys, known))
        for wrong, problem in (
            (np.flatnonzero(unknown.to_numpy(zero_copy_only=False)), "is not in the states that it was given"),
            (_repeated(keys), "occurs twice"),
        ):
            if len(wrong):
                key = tuple(column[int(wrong[0])].as_py() for column in columns)
                raise InvalidRequest(f"{what}: key {key!r} {problem}; return each of those keys once at most")
        return keys


def _repeated(keys: pa.Array) -> Ints:
    codes = keys.dictionary_encode().indices.to_numpy()
    return np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1) == 0)
