"""Columns of type void: always null. Spark keeps them in state that needs only a key, or only a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import CorruptState
from holdfast.rows.codec import RowCodec
from holdfast.rows.schema_json import row_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAID_OUT_AS = pa.int8()
"""A void column has a null bit and a slot, as any other; which fixed-width type it is read as makes no difference."""


class StoredRows:
    """Reads rows of a schema that Spark may have written: one in which whole columns may be void."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = row_schema(schema)
        self._codec = RowCodec(
            pa.schema(
                [pa.field(field.name, _LAID_OUT_AS) if pa.types.is_null(field.type) else field for field in self.schema]
            )
        )

    def decode(self, rows: pa.Array | Sequence[bytes]) -> list[pa.Array]:
        """Decode many rows to one array per column; CorruptState names row and column of what is not such a row."""
        columns: list[Any] = []
        decoded = self._codec.decode(rows)
        for field, column in zip(self.schema, decoded.columns, strict=True):
            if pa.types.is_null(field.type):
                if column.null_count != len(column):
                    raise CorruptState(f"column {field.name!r}: not null, but the column is void")
                columns.append(pa.nulls(len(column)))
            else:
                columns.append(column)
        return columns
