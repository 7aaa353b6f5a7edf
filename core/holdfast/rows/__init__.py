"""Spark schema, Arrow arrays and UnsafeRow bytes: conversions between them, and keys that sort."""

from holdfast.rows.codec import RowCodec
from holdfast.rows.dialect import ddl
from holdfast.rows.keys import KeyIndex, prefix_matches
from holdfast.rows.schema import arrow_schema
from holdfast.rows.schema_json import spark_json
from holdfast.rows.sortkey import SortKeyCodec

__all__ = ["KeyIndex", "RowCodec", "SortKeyCodec", "arrow_schema", "ddl", "prefix_matches", "spark_json"]
