"""Fitting the tables that users' functions return to the declared schema."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from holdfast.errors import InvalidSchema
from holdfast.rows.dialect import ddl, type_ddl
from holdfast.rows.schema import normal_type

Tabular: TypeAlias = "pa.Table | pa.RecordBatch"


def fit(table: Tabular, schema: pa.Schema, what: str) -> pa.Table:
    """Return the columns of the schema, by name, in its order and of its types; only what loses nothing is cast."""
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        raise InvalidSchema(f"{what} is a pyarrow.Table, not {type(table).__name__}")
    names = table.schema.names
    if sorted(names) != sorted(schema.names):
        raise InvalidSchema(f"{what} has the columns {names}, but is declared as ({ddl(schema)})")
    if names != schema.names:
        table = table.select(schema.names)
    columns = [_cast(column, field, what) for column, field in zip(table.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.Array | pa.ChunkedArray, field: pa.Field, what: str) -> pa.Array | pa.ChunkedArray:
    declared = field.type
    if column.null_count and not field.nullable:
        raise InvalidSchema(f"{what}: column {field.name!r} is {type_ddl(declared)} not null, and has a null")
    if column.type == declared:
        return column
    if not _may_become(column.type, declared):
        raise InvalidSchema(
            f"{what}: column {field.name!r} is {type_ddl(declared)}, but the data is {column.type}; "
            "cast it in the function (pyarrow.compute.cast), or declare the type that it has"
        )
    try:
        if pa.types.is_integer(column.type) and pa.types.is_decimal(declared):
            # Arrow goes by the digits that the type could have, not by those of the values.
            column = column.cast(pa.decimal256(76, declared.scale))
        return column.cast(declared)
    except pa.ArrowException as error:
        raise InvalidSchema(
            f"{what}: column {field.name!r} is {type_ddl(declared)}, and a value of the data, {column.type}, does not "
            f"fit: {error}"
        ) from error


def _may_become(actual: pa.DataType, declared: pa.DataType) -> bool:
    is_ = pa.types
    if is_.is_null(actual):
        return True
    if is_.is_integer(declared) or is_.is_floating(declared) or is_.is_decimal(declared):
        exact = is_.is_integer(actual) or is_.is_decimal(actual) == is_.is_decimal(declared)
        return bool(exact) and (is_.is_integer(actual) or is_.is_floating(actual) or is_.is_decimal(actual))
    try:
        normal = normal_type(actual, "")
    except InvalidSchema:
        return False
    if is_.is_timestamp(declared) and is_.is_timestamp(normal):
        return (normal.tz is None) == (declared.tz is None)
    return bool(normal.id == declared.id)
