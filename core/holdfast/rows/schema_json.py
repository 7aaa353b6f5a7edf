"""Spark's JSON spelling of a schema, as the JVM writes it: byte for byte, so that files made of it are Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.rows.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

WORDS = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.null(): "void",
}
"""Spark's JSON word for each type without parameters; other words than in DDL, and no synonyms."""

# Jackson's escapes: short ones where JSON has them, else upper-case hexadecimal; nothing beyond ASCII.
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES = str.maketrans({**{chr(code): f"\\u{code:04X}" for code in range(0x20)}, **_SHORT})


def spark_json(schema: pa.Schema) -> str:
    """Spell a schema as the JVM's ``StructType.json`` does; `arrow_schema` reads it back.

    Raises InvalidSchema, which names the column, for a type that state cannot hold.
    """
    return _struct_json(row_schema(schema))


def row_schema(schema: pa.Schema) -> pa.Schema:
    """Normalise as `arrow_schema` does, and let a whole column be void.

    Spark keeps such columns in the state of operators that need only a key, or only a value.
    """
    return pa.schema(
        [
            pa.field(field.name, field.type, nullable=field.nullable)
            if pa.types.is_null(field.type)
            else arrow_schema(pa.schema([field])).field(0)
            for field in schema
        ]
    )


def _struct_json(fields: Iterable[pa.Field]) -> str:
    return f'{{"type":"struct","fields":[{",".join(map(_field_json, fields))}]}}'


def _field_json(field: pa.Field) -> str:
    name = field.name.translate(_ESCAPES)
    return f'{{"name":"{name}","type":{_type_json(field.type)},"nullable":{_truth(field.nullable)},"metadata":{{}}}}'


def _type_json(data_type: pa.DataType) -> str:
    if pa.types.is_decimal(data_type):
        return f'"decimal({data_type.precision},{data_type.scale})"'
    if pa.types.is_map(data_type):
        key, value = _type_json(data_type.key_type), _type_json(data_type.item_type)
        nullable = _truth(data_type.item_field.nullable)
        return f'{{"type":"map","keyType":{key},"valueType":{value},"valueContainsNull":{nullable}}}'
    if pa.types.is_list(data_type):
        element, nullable = _type_json(data_type.value_type), _truth(data_type.value_field.nullable)
        return f'{{"type":"array","elementType":{element},"containsNull":{nullable}}}'
    if pa.types.is_struct(data_type):
        return _struct_json(data_type)
    return f'"{WORDS[data_type]}"'


def _truth(value: bool) -> str:
    return "true" if value else "false"
