"""A Python function per key."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from holdfast.errors import InvalidSchema
from holdfast.groups.buckets import Buckets
from holdfast.groups.engine import Engine, GroupPlan, Moment
from holdfast.groups.failure import function_failed, name_of
from holdfast.groups.grouping import group
from holdfast.groups.input import InputColumns
from holdfast.groups.keyed_state import KeyedState
from holdfast.groups.python_rows import row_maker, rows_of, table_of
from holdfast.ids import DEFAULT_STORE_NAME
from holdfast.rows import ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.contract.store import StateStore
    from holdfast.groups.keyed_state import Piece
    from holdfast.groups.python_rows import Row

RowFunction: TypeAlias = "Callable[[Row, Iterator[Row], GroupState], Iterable[tuple[Any, ...]] | None]"

_OUTPUT_ROWS = 4_096
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_UNCHANGED: Any = object()


class RowFunctionPlan(GroupPlan):
    """Calls ``fn(key, rows, state)`` once for every key that has rows in the micro-batch, with all of them.

    ``key`` is a tuple, ``rows`` an iterator of named rows, ``state`` a `GroupState`. What it yields or returns are the
    output rows, as tuples; None is none.
    """

    def __init__(
        self, keys: Sequence[str], input_schema: Any, state_schema: Any, output_schema: Any, fn: RowFunction
    ) -> None:
        super().__init__(keys, input_schema, state_schema, output_schema)
        self.fn = fn

    def engine(self, memory_limit_bytes: int, spill_dir: str) -> Engine:
        return _RowFunctionEngine(self, memory_limit_bytes, spill_dir)


class _Context:
    """What the states of all keys share."""

    def __init__(self, schema: pa.Schema, moment: Moment) -> None:
        self.schema = schema
        self.width = len(schema)
        self.row = row_maker(schema.names)
        self.watermark = _time(moment.watermark_ms)
        self.batch_time = _time(moment.batch_time_ms)


class GroupState:
    """The state of one key. What is set here is there in the next micro-batch, or not at all if this one fails."""

    __slots__ = ("_context", "_old", "new")

    def __init__(self, context: _Context, old: Row | None) -> None:
        self._context = context
        self._old = old
        self.new = _UNCHANGED

    @property
    def exists(self) -> bool:
        """Whether there is a state."""
        return (self._old if self.new is _UNCHANGED else self.new) is not None

    def get(self, default: Any = None) -> Any:
        """The state as a named row; `default` if there is none."""
        if self.new is not _UNCHANGED:
            return default if self.new is None else self._context.row(self.new)
        return default if self._old is None else self._old

    def update(self, values: Sequence[Any]) -> None:
        """Set the state: one value per column, as a tuple."""
        context = self._context
        if not isinstance(values, (tuple, list)) or len(values) != context.width:
            raise InvalidSchema(f"the state is a tuple of ({ddl(context.schema)}), not {values!r}")
        self.new = tuple(values)

    def remove(self) -> None:
        """Remove the state."""
        self.new = None

    @property
    def watermark(self) -> dt.datetime | None:
        """The watermark of this micro-batch, in UTC; None if the query has none."""
        return self._context.watermark

    @property
    def batch_time(self) -> dt.datetime | None:
        """When Spark planned this micro-batch, in UTC; the same if it has to be run again."""
        return self._context.batch_time


class _RowFunctionEngine(Engine):
    def __init__(self, plan: RowFunctionPlan, memory_limit_bytes: int, spill_dir: str) -> None:
        self._plan = plan
        self._input = InputColumns(plan.input_schema, plan.key_schema.names)
        self._rows = Buckets(memory_limit_bytes, spill_dir, plan.key_schema)

    def consume(self, batch: pa.RecordBatch) -> None:
        self._rows.add(self._input.fit(batch))

    def finish(self, stores: Mapping[str, StateStore], moment: Moment) -> Iterator[pa.RecordBatch]:
        state = KeyedState(stores[DEFAULT_STORE_NAME], self._plan.stores[DEFAULT_STORE_NAME])
        context = _Context(self._plan.state_schema, moment)
        for batch in self._rows.drain():
            if batch.num_rows:
                yield from self._call(batch, state, context)

    def close(self) -> None:
        self._rows.close()

    def _call(self, batch: pa.RecordBatch, state: KeyedState, context: _Context) -> Iterator[pa.RecordBatch]:
        names = self._plan.key_schema.names
        groups = group(batch.select(names).columns, list(self._plan.key_schema))
        keys = batch.select(names).take(pa.array(groups.first_rows))
        rows = rows_of(batch.take(pa.array(groups.sorted_rows())))
        output: list[Any] = []
        for piece in state.read(keys):
            piece_keys = list(rows_of(keys.slice(piece.first, len(piece))))
            sizes = groups.sizes[piece.first : piece.first + len(piece)].tolist()
            states = [GroupState(context, old) for old in _old_states(piece)]
            for key, size, group_state in zip(piece_keys, sizes, states, strict=True):
                own = islice(rows, size)
                results = self._results(key, own, group_state)
                output.extend(islice(results, _OUTPUT_ROWS))
                while len(output) >= _OUTPUT_ROWS:
                    yield from self._take_output(output)
                    output.extend(islice(results, _OUTPUT_ROWS))
                # Whatever the function left over must not become the next key's.
                for _ in own:
                    pass
            _write(state, piece, piece_keys, states, context.schema)
        yield from self._take_output(output)

    def _results(self, key: Row, rows: Iterator[Row], group_state: GroupState) -> Iterator[Any]:
        try:
            results = self._plan.fn(key, rows, group_state)
            if results is not None:
                yield from results
        except Exception as error:
            raise function_failed(self._plan.fn, f"for key {tuple(key)!r}", error) from error

    def _take_output(self, output: list[Any]) -> Iterator[pa.RecordBatch]:
        name = name_of(self._plan.fn)
        yield from table_of(output, self._plan.output_schema, lambda _: f"output of {name}").to_batches()
        output.clear()


def _old_states(piece: Piece) -> Iterable[Row | None]:
    known: Iterator[Row] = rows_of(piece.states)
    if len(piece.known) == len(piece):
        return known
    old: list[Row | None] = [None] * len(piece)
    for at, row in zip(piece.known.tolist(), known, strict=True):
        old[at] = row
    return old


def _write(
    state: KeyedState, piece: Piece, keys: Sequence[Row], states: Sequence[GroupState], schema: pa.Schema
) -> None:
    new = [each.new for each in states]
    put = [at for at, row in enumerate(new) if row is not None and row is not _UNCHANGED]
    if put:
        rows = table_of([new[at] for at in put], schema, lambda at: f"state of key {tuple(keys[put[at]])!r}")
        state.put(piece.keys.take(pa.array(put)), rows)
    removed = [at for at, row in enumerate(new) if row is None]
    if removed:
        state.remove(piece.keys.take(pa.array(removed)))


def _time(milliseconds: int | None) -> dt.datetime | None:
    return None if milliseconds is None else _EPOCH + dt.timedelta(milliseconds=milliseconds)
