"""One value per group, from a column and the groups of its rows; nulls are left out, and null is what nothing gives."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.rows import SortKeyCodec

if TYPE_CHECKING:
    from holdfast.groups.grouping import Groups
    from holdfast.rows.words import Bools, Ints, Numbers

_WIDE_DIGITS = 76


def _present(column: pa.Array, groups: Groups) -> tuple[pa.Array, Ints, Bools]:
    """The values that are not null, their groups, and the groups that have any."""
    codes = groups.codes
    if column.null_count:
        codes = codes[column.is_valid().to_numpy(zero_copy_only=False)]
        column = column.drop_null()
    there = np.zeros(groups.count, np.bool_)
    there[codes] = True
    return column, codes, there


def _array(values: Numbers, there: Bools, data_type: pa.DataType) -> pa.Array:
    mask = None if there.all() else ~there
    return pa.array(values, mask=mask, from_pandas=False).cast(data_type)


def sum_longs(column: pa.Array, groups: Groups) -> tuple[pa.Array, Bools]:
    """Sums that wrap around as Java's do, and which of them did."""
    column, codes, there = _present(column, groups)
    values = column.to_numpy()
    sums = np.zeros(groups.count, np.int64)
    np.add.at(sums, codes, values)
    largest = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
    if largest * len(values) < 2**63:
        return _array(sums, there, pa.int64()), np.zeros(groups.count, np.bool_)
    high, low = np.zeros_like(sums), np.zeros_like(sums)
    np.add.at(high, codes, values >> 32)
    np.add.at(low, codes, values & 0xFFFFFFFF)
    return _array(sums, there, pa.int64()), (high + (low >> 32)) != sums >> 32


def sum_doubles(column: pa.Array, groups: Groups) -> pa.Array:
    """Sums of doubles, added in the order of the rows."""
    column, codes, there = _present(column, groups)
    sums = np.zeros(groups.count)
    # Infinities of both signs make a NaN, which is right and no warning.
    with np.errstate(invalid="ignore", over="ignore"):
        np.add.at(sums, codes, column.to_numpy())
    return _array(sums, there, pa.float64())


def sum_decimals(column: pa.Array, groups: Groups) -> tuple[pa.Array, Bools]:
    """Sums of the column's own type, null where one has more digits than that, and where that is."""
    wide = column.cast(pa.decimal256(_WIDE_DIGITS, column.type.scale))
    table = pa.table({"group": groups.codes, "value": wide})
    sums = table.group_by("group", use_threads=False).aggregate([("value", "sum")])
    row_of = np.full(groups.count, -1)
    row_of[sums["group"].to_numpy()] = np.arange(len(sums))
    return narrow(_take(sums["value_sum"].combine_chunks(), row_of), column.type)


def narrow(wide: pa.Array, data_type: pa.DataType) -> tuple[pa.Array, Bools]:
    """Decimals of fewer digits, null where one has more, and where that is."""
    limit = Decimal(10 ** (data_type.precision - data_type.scale))
    fits = pc.less(pc.abs(wide), pa.scalar(limit, pa.decimal256(_WIDE_DIGITS, wide.type.scale)))
    narrowed = pc.if_else(fits, wide, pa.scalar(None, wide.type)).cast(data_type)
    return narrowed, ~fits.fill_null(True).to_numpy(zero_copy_only=False)


def extremes(column: pa.Array, groups: Groups, *, largest: bool) -> pa.Array:
    """The smallest or the largest value; NaN is larger than all others."""
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return _sorted_extremes(column, groups, largest=largest)
    column, codes, there = _present(column, groups)
    values = column.view(f"int{kind.bit_width}").to_numpy() if pa.types.is_temporal(kind) else column.to_numpy()
    found = np.zeros(groups.count, values.dtype)
    # Any value of the group will do to start from.
    found[codes] = values
    # Both know NaN: fmin prefers anything else, maximum prefers NaN.
    with np.errstate(invalid="ignore"):
        (np.maximum if largest else np.fmin).at(found, codes, values)
    return _array(found, there, pa.from_numpy_dtype(values.dtype)).view(kind)


def _sorted_extremes(column: pa.Array, groups: Groups, *, largest: bool) -> pa.Array:
    valid = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    sortable = column.drop_null()
    if pa.types.is_struct(column.type):
        schema = pa.schema([pa.field("value", column.type)])
        sortable = SortKeyCodec(schema).encode(pa.RecordBatch.from_arrays([sortable], schema=schema))
    order = valid[pc.sort_indices(sortable).to_numpy()]
    return _take(column, _edge(groups.codes[order], order, groups.count, last=largest))


def edges(column: pa.Array, groups: Groups, *, last: bool, ignore_nulls: bool) -> pa.Array:
    """The first or the last value, in the order of the rows."""
    rows = np.arange(len(column))
    codes = groups.codes
    if ignore_nulls and column.null_count:
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        codes = codes[rows]
    return _take(column, _edge(codes, rows, groups.count, last=last))


def any_true(flags: Bools, groups: Groups) -> Bools:
    """Whether a flag is set in any row of a group."""
    found = np.zeros(groups.count, np.bool_)
    found[groups.codes[flags]] = True
    return found


def _edge(codes: Ints, rows: Ints, count: int, *, last: bool) -> Ints:
    """The first or last of the rows of each group; -1 where there is none."""
    found = np.full(count, -1)
    # Of several values for one place the last one stays.
    step = 1 if last else -1
    found[codes[::step]] = rows[::step]
    return found


def _take(column: pa.Array, rows: Ints) -> pa.Array:
    """The values at these rows; null for -1."""
    return column.take(pa.array(rows, mask=rows < 0))
