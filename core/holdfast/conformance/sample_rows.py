"""Keys and values of the kit's schemas. Without pytest, so that child processes start fast."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from holdfast.conformance.backend import KEY_SCHEMA, VALUE_SCHEMA

if TYPE_CHECKING:
    from holdfast.rows import RowCodec


@cache
def codec(schema: str) -> RowCodec:
    """Codec of a schema given as DDL."""
    from holdfast.rows import RowCodec, arrow_schema

    return RowCodec(arrow_schema(schema))


def key(name: str | None, part: int | None = 0) -> bytes:
    """A key of the kit's schema."""
    return codec(KEY_SCHEMA).encode_one((name, part))


def value(n: int | None, text: str | None = None) -> bytes:
    """A value of the kit's schema."""
    return codec(VALUE_SCHEMA).encode_one((n, text))
