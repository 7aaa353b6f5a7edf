"""Fitting a batch to a declared schema before its buffers are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from holdfast.errors import InvalidSchema
from holdfast.rows.dialect import ddl, type_ddl
from holdfast.rows.schema import normal_type

if TYPE_CHECKING:
    from collections.abc import Iterator

RowData: TypeAlias = "pa.RecordBatch | pa.Table | pa.StructArray"
"""Many rows, in any of the forms that Arrow has for them."""


BLOCK = 32_768
"""Rows handled at a time: what is computed about them then stays in the processor's caches."""


def columns_of(rows: RowData, schema: pa.Schema) -> Iterator[tuple[int, int, list[pa.Array]]]:
    """Give the rows in pieces: first row, number of rows, and one array of the declared type per column.

    The names must be the schema's, in its order: a batch with its columns the other way round is a mistake that
    would otherwise end up as wrong state.
    """
    if isinstance(rows, pa.StructArray):
        if rows.null_count:
            raise InvalidSchema("a row is null; only its columns may be")
        names = [field.name for field in rows.type]
        pieces = [(len(rows), [rows.field(i) for i in range(rows.type.num_fields)])]
    elif isinstance(rows, (pa.RecordBatch, pa.Table)):
        names = rows.schema.names
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        pieces = [(batch.num_rows, batch.columns) for batch in batches]
    else:
        raise InvalidSchema(f"rows are a RecordBatch, a Table or a StructArray, not {type(rows).__name__}")
    if names != schema.names:
        raise InvalidSchema(f"the columns are {names}, but the schema is ({ddl(schema)})")
    row = 0
    for length, columns in pieces:
        fitting = [conform(column, field.type, field.name) for column, field in zip(columns, schema, strict=True)]
        for first in range(0, length, BLOCK):
            block = min(BLOCK, length - first)
            yield row + first, block, [column.slice(first, block) for column in fitting]
        row += length


def conform(array: pa.Array, declared: pa.DataType, path: str) -> pa.Array:
    """Return the array in the layout of the declared type; only changes that lose nothing are made."""
    if same_layout(array.type, declared):
        return array
    try:
        normal = normal_type(array.type, path)
    except InvalidSchema:
        normal = None
    if normal is None or not same_layout(normal, declared):
        raise InvalidSchema(f"column {path!r} is {type_ddl(declared)}, but the data is {array.type}")
    try:
        return array.cast(normal)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidSchema(
            f"column {path!r} is {type_ddl(declared)}; data of type {array.type} does not fit: {error}"
        ) from error


def same_layout(actual: pa.DataType, declared: pa.DataType) -> bool:
    """Whether arrays of the two types have buffers that mean the same; nullability is checked on the data."""
    kind = _SHORT.get(actual.id, actual.id)
    if kind != declared.id:
        return False
    if pa.types.is_struct(declared):
        return actual.num_fields == declared.num_fields and all(
            ours.name == theirs.name and same_layout(theirs.type, ours.type)
            for ours, theirs in zip(declared, actual, strict=True)
        )
    if pa.types.is_map(declared):
        return same_layout(actual.key_type, declared.key_type) and same_layout(actual.item_type, declared.item_type)
    if pa.types.is_list(declared):
        return same_layout(actual.value_type, declared.value_type)
    if pa.types.is_decimal(declared):
        return bool(actual.scale == declared.scale and actual.precision <= declared.precision)
    if pa.types.is_timestamp(declared):
        # Any zone will do: the number is the same instant, and the zone only says how to print it.
        return actual.unit == declared.unit and (actual.tz is None) == (declared.tz is None)
    return True


_SHORT = {
    pa.large_string().id: pa.string().id,
    pa.large_binary().id: pa.binary().id,
    pa.large_list(pa.null()).id: pa.list_(pa.null()).id,
}
