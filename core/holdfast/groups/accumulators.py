"""How each aggregate is kept in state.

A row is *lifted* to the state that it alone would make, and states are *merged*: those of the rows of a batch, those of
several batches, and the stored one with the new one, which comes after it. That is all there is to an aggregate, and
all of it works on whole columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest, InvalidSchema
from holdfast.groups import reductions
from holdfast.groups.aggregates import Aggregate, Function
from holdfast.rows.dialect import MAX_DECIMAL_DIGITS, ddl, type_ddl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.groups.grouping import Groups
    from holdfast.rows.words import Bools


class Accumulator(ABC):
    """One aggregate of one column."""

    def __init__(self, name: str, aggregate: Aggregate, state: Sequence[pa.Field], result: pa.DataType) -> None:
        self.aggregate = aggregate
        self.state = tuple(state)
        """The columns it has in state."""
        self.output = pa.field(name, result)

    @abstractmethod
    def lift(self, column: pa.Array) -> list[pa.Array]:
        """Make one state of each value."""

    @abstractmethod
    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Make one state of those of each group, which are in their order in time."""

    def result(self, states: Sequence[pa.Array]) -> pa.Array:
        """Give the value that each state stands for."""
        return states[0]

    def _overflow(self, kind: str, condition: str = "ARITHMETIC_OVERFLOW") -> NoReturn:
        """Refuse a result that does not fit, under Spark's name for the condition."""
        raise InvalidRequest(
            f"[{condition}] {kind} overflow in {self.aggregate} as {self.output.name!r}. Cast the column to a "
            "larger type before grouping (decimal(38, 0), double), or set spark.sql.ansi.enabled to false to get "
            "what Spark gives then"
        )


class Count(Accumulator):
    """Rows, or values that are not null."""

    def __init__(self, name: str, aggregate: Aggregate) -> None:
        super().__init__(name, aggregate, [pa.field(name, pa.int64(), nullable=False)], pa.int64())

    def lift(self, column: pa.Array) -> list[pa.Array]:
        return [column.is_valid().cast(pa.int64())]

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return [reductions.sum_longs(states[0], groups)[0]]


class LongSum(Accumulator):
    """The sum of whole numbers."""

    def __init__(self, name: str, aggregate: Aggregate, ansi: bool) -> None:
        super().__init__(name, aggregate, [pa.field(name, pa.int64())], pa.int64())
        self._ansi = ansi

    def lift(self, column: pa.Array) -> list[pa.Array]:
        return [column.cast(pa.int64())]

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        sums, wrapped = reductions.sum_longs(states[0], groups)
        if self._ansi and wrapped.any():
            self._overflow("long")
        return [sums]


class DoubleSum(Accumulator):
    """The sum of floating-point numbers."""

    def __init__(self, name: str, aggregate: Aggregate) -> None:
        super().__init__(name, aggregate, [pa.field(name, pa.float64())], pa.float64())

    def lift(self, column: pa.Array) -> list[pa.Array]:
        return [column.cast(pa.float64())]

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return [reductions.sum_doubles(states[0], groups)]


class DecimalSum(Accumulator):
    """The sum of decimals. A sum that became too large is null and not empty, and stays so."""

    def __init__(self, name: str, aggregate: Aggregate, data_type: pa.DataType, ansi: bool) -> None:
        total = _bounded(data_type.precision + 10, data_type.scale)
        state = [pa.field(name, total), pa.field(f"{name}_is_empty", pa.bool_(), nullable=False)]
        super().__init__(name, aggregate, state, total)
        self._ansi = ansi

    def lift(self, column: pa.Array) -> list[pa.Array]:
        return [column.cast(self.output.type), column.is_null()]

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        empty = states[1].to_numpy(zero_copy_only=False)
        lost = states[0].is_null().to_numpy(zero_copy_only=False) & ~empty
        sums, too_large = reductions.sum_decimals(states[0], groups)
        too_large |= reductions.any_true(lost, groups)
        if self._ansi and too_large.any():
            self._overflow("decimal")
        return [_without(sums, too_large), pa.array(~reductions.any_true(~empty, groups))]


class DoubleAverage(Accumulator):
    """The mean of numbers that are not decimals. Spark adds them as doubles, also whole ones."""

    def __init__(self, name: str, aggregate: Aggregate) -> None:
        super().__init__(
            name, aggregate, _sum_and_count(name, pa.field("", pa.float64(), nullable=False)), pa.float64()
        )

    def lift(self, column: pa.Array) -> list[pa.Array]:
        # Unchecked, because a long with more than 53 bits is rounded, as in Spark.
        return [column.cast(pa.float64(), safe=False).fill_null(0.0), column.is_valid().cast(pa.int64())]

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return [reductions.sum_doubles(states[0], groups), reductions.sum_longs(states[1], groups)[0]]

    def result(self, states: Sequence[pa.Array]) -> pa.Array:
        return pc.divide(states[0], _nonzero(states[1]).cast(pa.float64(), safe=False))


class DecimalAverage(Accumulator):
    """The mean of decimals. A sum that became too large is null, and stays so."""

    def __init__(self, name: str, aggregate: Aggregate, data_type: pa.DataType, ansi: bool) -> None:
        self._total = _bounded(data_type.precision + 10, data_type.scale)
        mean = _bounded(data_type.precision + 4, data_type.scale + 4)
        super().__init__(name, aggregate, _sum_and_count(name, pa.field("", self._total)), mean)
        self._ansi = ansi

    def lift(self, column: pa.Array) -> list[pa.Array]:
        return [column.cast(self._total).fill_null(0), column.is_valid().cast(pa.int64())]

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        sums, too_large = reductions.sum_decimals(states[0], groups)
        too_large |= reductions.any_true(states[0].is_null().to_numpy(zero_copy_only=False), groups)
        if self._ansi and too_large.any():
            self._overflow("decimal")
        return [_without(sums, too_large), reductions.sum_longs(states[1], groups)[0]]

    def result(self, states: Sequence[pa.Array]) -> pa.Array:
        mean = self.output.type
        sums = states[0].cast(pa.decimal256(MAX_DECIMAL_DIGITS, self._total.scale))
        # Arrow cuts the quotient off, but far behind the last digit of the mean, so that rounding it there is exact.
        quotients = pc.divide(sums, _nonzero(states[1]).cast(pa.decimal256(19, 0)))
        rounded = pc.round(quotients, ndigits=mean.scale, round_mode="half_towards_infinity")
        means, too_large = reductions.narrow(rounded, mean)
        if self._ansi and too_large.any():
            self._overflow("decimal", "NUMERIC_VALUE_OUT_OF_RANGE")
        return means


class Extreme(Accumulator):
    """The smallest or the largest value."""

    def __init__(self, name: str, aggregate: Aggregate, data_type: pa.DataType) -> None:
        super().__init__(name, aggregate, [pa.field(name, data_type)], data_type)

    def lift(self, column: pa.Array) -> list[pa.Array]:
        return [column]

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return [reductions.extremes(states[0], groups, largest=self.aggregate.function is Function.MAX)]


class Edge(Accumulator):
    """The first or the last value."""

    def __init__(self, name: str, aggregate: Aggregate, data_type: pa.DataType) -> None:
        super().__init__(name, aggregate, [pa.field(name, data_type)], data_type)

    def lift(self, column: pa.Array) -> list[pa.Array]:
        return [column]

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        last, ignore_nulls = self.aggregate.function is Function.LAST, self.aggregate.ignore_nulls
        return [reductions.edges(states[0], groups, last=last, ignore_nulls=ignore_nulls)]


def accumulator(name: str, aggregate: Aggregate, schema: pa.Schema, *, ansi: bool) -> Accumulator:
    """Find how an aggregate of a column of `schema` is computed. Raises InvalidSchema if it cannot be."""
    function = aggregate.function
    if aggregate.column is None:
        return Count(name, aggregate)
    if len(schema.get_all_field_indices(aggregate.column)) != 1:
        what = "more than one column" if aggregate.column in schema.names else "no column"
        raise InvalidSchema(f"{name}={aggregate}: there is {what} {aggregate.column!r} in ({ddl(schema)})")
    kind = schema.field(aggregate.column).type
    if function is Function.COUNT:
        return Count(name, aggregate)
    if function in (Function.FIRST, Function.LAST):
        return Edge(name, aggregate, kind)
    if function in (Function.MIN, Function.MAX):
        if _has_order(kind):
            return Extreme(name, aggregate, kind)
    elif pa.types.is_decimal(kind):
        return (DecimalSum if function is Function.SUM else DecimalAverage)(name, aggregate, kind, ansi)
    elif pa.types.is_integer(kind) and function is Function.SUM:
        return LongSum(name, aggregate, ansi)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return (DoubleSum if function is Function.SUM else DoubleAverage)(name, aggregate)
    wanted = "a type with an order" if function in (Function.MIN, Function.MAX) else "a number"
    raise InvalidSchema(f"{name}={aggregate}: the column is {type_ddl(kind)}, and it must be {wanted}; cast it first")


def _has_order(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_has_order(field.type) for field in kind)
    return not pa.types.is_nested(kind)


def _bounded(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, MAX_DECIMAL_DIGITS), min(scale, MAX_DECIMAL_DIGITS))


def _sum_and_count(name: str, total: pa.Field) -> list[pa.Field]:
    return [total.with_name(f"{name}_sum"), pa.field(f"{name}_count", pa.int64(), nullable=False)]


def _without(array: pa.Array, dropped: Bools) -> pa.Array:
    return pc.if_else(pa.array(dropped), pa.scalar(None, array.type), array) if dropped.any() else array


def _nonzero(counts: pa.Array) -> pa.Array:
    """Null for zero: a division by it is null, not an error."""
    return pc.if_else(pc.equal(counts, 0), pa.scalar(None, counts.type), counts)
