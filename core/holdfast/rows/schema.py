"""One spelling for every schema: Spark's in any form goes in, an Arrow schema comes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import pyarrow as pa

from holdfast.errors import InvalidSchema
from holdfast.rows import dialect

# Where Spark's JSON records a collation: the type itself still reads "string".
_COLLATIONS = "__COLLATIONS"


def arrow_schema(spec: Any) -> pa.Schema:
    """Turn any description of a row into the Arrow schema that the codecs work with.

    `spec` is a Spark DDL string, a pyspark ``StructType``, Spark's JSON for one (text or parsed), or an Arrow
    schema. Nullability is kept. A timestamp is ``timestamp[us, tz=UTC]``, a timestamp_ntz ``timestamp[us]``;
    char(n) and varchar(n) are strings, as they are in a row. Of an Arrow schema, variants of a type that Spark
    has once (large or view strings, other units and zones of timestamps) become that one.

    Raises InvalidSchema, which names the column, for a type that state cannot hold.
    """
    if isinstance(spec, pa.Schema):
        return pa.schema([_normal_field(field, field.name) for field in spec])
    if isinstance(spec, str):
        if not spec.lstrip().startswith("{"):
            return pa.schema(dialect.parse_columns(spec))
        try:
            spec = json.loads(spec)
        except ValueError as error:
            raise InvalidSchema(f"schema looks like JSON but is not: {error}") from error
    elif hasattr(spec, "jsonValue"):
        spec = spec.jsonValue()
    if not isinstance(spec, Mapping):
        raise InvalidSchema(
            f"a schema is a DDL string, a StructType, its JSON or a pyarrow.Schema, not {type(spec).__name__}: {spec!r}"
        )
    row = _from_json(spec, "")
    if not pa.types.is_struct(row):
        raise InvalidSchema(f"a schema is a struct of columns, not {dialect.type_ddl(row)}")
    return pa.schema(list(row))


def _from_json(node: Any, path: str) -> pa.DataType:
    if isinstance(node, str):
        return dialect.parse_type(node, path)
    try:
        kind = node["type"]
        if kind == "array":
            element = _from_json(node["elementType"], f"{path}.element")
            return dialect.list_of(element, nullable=node["containsNull"])
        if kind == "map":
            return dialect.map_of(
                _from_json(node["keyType"], f"{path}.key"),
                _from_json(node["valueType"], f"{path}.value"),
                nullable=node["valueContainsNull"],
            )
        if kind == "struct":
            return pa.struct([_field_from_json(field, path) for field in node["fields"]])
    except (KeyError, TypeError) as error:
        raise InvalidSchema(f"column {path!r}: not Spark's schema JSON: {node!r}") from error
    return _refuse(path, str(kind))


def _field_from_json(node: Mapping[str, Any], path: str) -> pa.Field:
    name = node["name"]
    path = f"{path}.{name}" if path else name
    collations = (node.get("metadata") or {}).get(_COLLATIONS)
    if collations:
        raise InvalidSchema(
            f"column {path!r}: a string collated {', '.join(sorted(map(str, collations.values())))} cannot be "
            "kept in state, because there equal keys need not be equal bytes; the accepted collation is "
            "UTF8_BINARY"
        )
    return pa.field(name, _from_json(node["type"], path), nullable=node.get("nullable", True))


def _normal_field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, normal_type(field.type, path), nullable=field.nullable)


def normal_type(data_type: pa.DataType, path: str) -> pa.DataType:
    """Return the one Arrow type that stands for what Spark calls this type."""
    types = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return _refuse(path, str(data_type))
    if dialect.is_simple(data_type):
        return data_type
    if types.is_dictionary(data_type):
        return normal_type(data_type.value_type, path)
    if types.is_large_string(data_type) or types.is_string_view(data_type):
        return pa.string()
    if types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type):
        return pa.binary()
    if types.is_binary_view(data_type):
        return pa.binary()
    if types.is_timestamp(data_type):
        return pa.timestamp("us", tz=None if data_type.tz is None else "UTC")
    if types.is_decimal(data_type):
        try:
            return dialect.decimal_of(data_type.precision, data_type.scale)
        except ValueError as error:
            raise InvalidSchema(f"column {path!r}: {data_type}: {error}") from error
    if types.is_map(data_type):
        return dialect.map_of(
            normal_type(data_type.key_type, f"{path}.key"),
            normal_type(data_type.item_type, f"{path}.value"),
            nullable=data_type.item_field.nullable,
        )
    if types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type):
        element = normal_type(data_type.value_type, f"{path}.element")
        return dialect.list_of(element, nullable=data_type.value_field.nullable)
    if types.is_struct(data_type):
        return pa.struct([_normal_field(field, f"{path}.{field.name}") for field in data_type])
    return _refuse(path, str(data_type))


def _refuse(path: str, kind: str) -> NoReturn:
    raise InvalidSchema(f"column {path!r}: type {kind!r} cannot be kept in state; accepted are {dialect.ACCEPTED}")
