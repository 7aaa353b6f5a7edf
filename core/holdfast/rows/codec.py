"""The codec between Arrow and UnsafeRow bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import InvalidRequest
from holdfast.rows.conform import BLOCK, columns_of
from holdfast.rows.decode import decode_rows
from holdfast.rows.encode import rows_of, write_all
from holdfast.rows.scalar import RowStruct
from holdfast.rows.schema import arrow_schema
from holdfast.rows.words import offsets_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.rows.conform import RowData


class RowCodec:
    """Rows of one schema, to and from the bytes that Spark's ``UnsafeProjection`` makes of them.

    Bytes are identical to the JVM's, so equal rows are equal bytes wherever they were encoded (except that Spark and
    this codec both keep 0.0 and -0.0, and the many NaNs, apart: normalise floating-point keys first).

    Python values, for single rows, are those of pyarrow's ``as_py``: an aware ``datetime`` for timestamp, a naive one
    for timestamp_ntz, ``date``, ``Decimal``, ``bytes``, ``list``. A map decodes to a list of pairs, because its keys
    need not be hashable; a ``dict`` is accepted too. A struct decodes to a ``dict`` (to a tuple if two of its
    fields have one name); a ``dict`` or a sequence in field order is accepted.
    """

    def __init__(self, schema: Any) -> None:
        """Take the schema in any form that `arrow_schema` accepts."""
        self.schema: pa.Schema = arrow_schema(schema)
        self._one = RowStruct(self.schema)

    def encode(self, rows: RowData) -> pa.LargeBinaryArray:
        """Encode a batch, one element per row.

        Raises InvalidSchema if the columns are not the schema's, a value does not fit, or a column that is not null
        has a null.
        """
        return write_all(
            [
                rows_of(columns, self.schema, length, first_row=first)
                for first, length, columns in columns_of(rows, self.schema)
            ]
        )

    def decode(
        self, rows: pa.Array | pa.ChunkedArray | Sequence[bytes], columns: Sequence[int] | None = None
    ) -> pa.RecordBatch:
        """Decode many rows: all their columns, or those at the given positions.

        Raises CorruptState, which names row and column, if bytes are not a row of this schema.
        """
        array = row_array(rows)
        wanted = range(len(self.schema)) if columns is None else columns
        if not all(position in range(len(self.schema)) for position in wanted):
            raise InvalidRequest(f"columns {list(wanted)} of a row that has {len(self.schema)}")
        schema = pa.schema([self.schema.field(position) for position in wanted])
        offsets = offsets_in(array, large=pa.types.is_large_binary(array.type))
        blocks = [
            decode_rows(array.buffers()[2], offsets[first : first + BLOCK + 1], self.schema, wanted, first)
            for first in range(0, max(len(array), 1), BLOCK)
        ]
        if not wanted:
            # A batch without columns has no other way to say how many rows it has.
            nothing = pa.StructArray.from_buffers(pa.struct([]), len(array), [None], children=[])
            return pa.RecordBatch.from_struct_array(nothing)
        try:
            arrays = [
                column[0] if len(column) == 1 else pa.concat_arrays(column) for column in zip(*blocks, strict=True)
            ]
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                f"a column of these rows exceeds 2 GiB; decode fewer rows at a time: {error}"
            ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def encode_one(self, values: Sequence[Any]) -> bytes:
        """Encode one row, given as one Python value per column: the same bytes that `encode` gives."""
        return self._one.encode(values)

    def decode_one(self, row: bytes) -> tuple[Any, ...]:
        """Decode one row to Python values. Raises CorruptState if the bytes are not a row of this schema."""
        if not isinstance(row, (bytes, bytearray, memoryview)):
            raise InvalidRequest(f"an encoded row is bytes, not {type(row).__name__}")
        return self._one.decode(row)


def row_array(rows: pa.Array | pa.ChunkedArray | Sequence[bytes]) -> pa.Array:
    """Return encoded rows as one binary array."""
    if isinstance(rows, pa.ChunkedArray):
        rows = rows.cast(pa.large_binary()).combine_chunks()
    elif not isinstance(rows, pa.Array):
        try:
            rows = pa.array(rows, pa.large_binary())
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidRequest(f"rows are a sequence of bytes: {error}") from error
    if not (pa.types.is_binary(rows.type) or pa.types.is_large_binary(rows.type)):
        raise InvalidRequest(f"rows are binary, not {rows.type}")
    if rows.null_count:
        raise InvalidRequest("a row is null; encoded rows are bytes")
    return rows
