"""Keys that sort: bytes whose plain order is Spark's ascending, nulls-first order of the columns.

UnsafeRow bytes do not sort (numbers are little-endian, strings stand behind their offsets), so ordered stores keep this
encoding next to them. Each column is a byte that says whether there is a value, 0 for null, then the value:

- integers, dates, timestamps, decimals: big-endian at a fixed width, the sign bit flipped;
- float and double: as big-endian, negative numbers inverted, others with the sign bit flipped; -0.0 is 0.0, and every
  NaN is one NaN, above infinity, as Spark orders them;
- strings and binaries: the bytes, each 00 as 00 FF, then 00 00, so that no encoding is the beginning of another;
- structs: their fields, one after the other.

Columns follow each other without more ado, so the encoding of the leading columns is a prefix of the whole.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidSchema
from holdfast.rows.conform import columns_of
from holdfast.rows.decimals import MAX_LONG_DIGITS
from holdfast.rows.dialect import ddl, type_ddl
from holdfast.rows.encode import FIXED_WIDTH
from holdfast.rows.scalar import Place, row_values
from holdfast.rows.schema import arrow_schema
from holdfast.rows.words import Numbers, bits_in, values_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.rows.conform import RowData

_NULL = b"\x00"
_PRESENT = b"\x01"
_ZERO = b"\x00"
_ESCAPED_ZERO = b"\x00\xff"
_END = b"\x00\x00"
_BIG_DECIMAL_BYTES = 16


class SortKeyCodec:
    """Order-preserving encoding of some columns of a schema's rows."""

    def __init__(self, schema: Any, columns: Iterable[str | int] | None = None) -> None:
        """Take the schema in any form that `arrow_schema` accepts.

        `columns` are names or positions, in order of significance; all of the schema's by default. Arrays and maps
        have no place in a sort key: InvalidSchema.
        """
        self.schema: pa.Schema = arrow_schema(schema)
        positions = range(len(self.schema)) if columns is None else columns
        self.columns = tuple(_position(self.schema, column) for column in positions)
        """Positions of the encoded columns."""
        fields = [self.schema.field(position) for position in self.columns]
        for field in fields:
            _refuse_unordered(field, field.name)
        self._places = [Place(field, "") for field in fields]

    def encode(self, rows: RowData) -> pa.LargeBinaryArray:
        """Encode the columns of a batch of the whole schema, one element per row."""
        blocks = []
        for _, length, columns in columns_of(rows, self.schema):
            pieces = [_column(columns[p], self.schema.field(p).type, length) for p in self.columns]
            blocks.append(_join(pieces, length))
        return pa.concat_arrays(blocks) if blocks else pa.array([], pa.large_binary())

    def encode_one(self, values: Sequence[Any]) -> bytes:
        """Encode the columns of one row, given as one Python value per column of the whole schema."""
        values = row_values(values, len(self.schema), "a row")
        return self.encode_prefix([values[position] for position in self.columns])

    def encode_prefix(self, values: Sequence[Any]) -> bytes:
        """Encode values of the encoded columns, or of the first few: the prefix of all keys that begin with them."""
        if len(values) > len(self._places):
            raise InvalidSchema(f"a sort key has {len(self._places)} columns, not {len(values)}")
        return b"".join(map(_encode_value, self._places, values))


def _position(schema: pa.Schema, column: str | int) -> int:
    if isinstance(column, str):
        found = schema.get_all_field_indices(column)
        if len(found) == 1:
            return int(found[0])
        what = "no column" if not found else "more than one column"
        raise InvalidSchema(f"there is {what} {column!r} in ({ddl(schema)})")
    if not 0 <= column < len(schema):
        raise InvalidSchema(f"there is no column at position {column} in ({ddl(schema)})")
    return column


def _refuse_unordered(field: pa.Field, path: str) -> None:
    if pa.types.is_struct(field.type):
        for inner in field.type:
            _refuse_unordered(inner, f"{path}.{inner.name}")
    elif pa.types.is_nested(field.type):
        raise InvalidSchema(
            f"column {path!r} is {type_ddl(field.type)}; a sort key can have any type except arrays and maps"
        )


def _column(array: pa.Array, data_type: pa.DataType, length: int) -> pa.Array:
    """Encode one column, its leading byte included."""
    if pa.types.is_struct(data_type):
        # What lies under a null struct is encoded and then dropped.
        fields = [_column(array.field(i), field.type, length) for i, field in enumerate(data_type)]
        present = _join([pa.repeat(pa.scalar(_PRESENT, pa.large_binary()), length), *fields], length)
    elif pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        value = array.cast(pa.large_binary())
        if pc.any(pc.match_substring(value, _ZERO)).as_py():
            value = pc.replace_substring(value, _ZERO, _ESCAPED_ZERO)
        parts = [pa.scalar(part, pa.large_binary()) for part in (_PRESENT, _END, b"")]
        present = pc.binary_join_element_wise(parts[0], value, parts[1], parts[2])
    else:
        big_endian = _big_endian(array, data_type)
        width = 1 + big_endian.shape[1]
        cells = np.empty((length, width), np.uint8)
        cells[:, 0] = _PRESENT[0]
        cells[:, 1:] = big_endian
        present = _binary(np.arange(length + 1, dtype=np.int64) * width, cells)
    if array.null_count:
        return pc.if_else(pc.is_valid(array), present, pa.scalar(_NULL, pa.large_binary()))
    return present


def _big_endian(array: pa.Array, data_type: pa.DataType) -> Numbers:
    """Return the bytes of a fixed-width column, a line each, so that they sort."""
    length = len(array)
    if pa.types.is_boolean(data_type):
        bits = bits_in(array.buffers()[1], array.offset, length) if length else np.zeros(0, np.bool_)
        return bits.view(np.uint8).reshape(length, 1)
    if pa.types.is_decimal(data_type):
        pairs = values_in(array, "V16").view("<u8").reshape(length, 2)
        cells: Numbers = np.empty((length, 2), ">u8")
        cells[:, 0] = pairs[:, 1]
        cells[:, 1] = pairs[:, 0]
        if data_type.precision <= MAX_LONG_DIGITS:
            cells = np.ascontiguousarray(cells[:, 1:])
        cells[:, 0] ^= np.uint64(1 << 63)
        return cells.view(np.uint8)
    width = FIXED_WIDTH[data_type.id]
    sign = np.array(1 << (8 * width - 1), f"<u{width}")
    values = values_in(array, f"<u{width}")
    if pa.types.is_floating(data_type):
        # In bits, not in numbers: arithmetic on a signalling NaN warns.
        infinity, nan = np.array([np.inf, np.nan], f"<f{width}").view(f"<u{width}")
        magnitude = values & ~sign
        values = np.where(magnitude > infinity, nan, np.where(magnitude == 0, magnitude, values))
        values = np.where(values & sign, ~values, values ^ sign)
    else:
        values = values ^ sign
    cells = values.astype(f">u{width}")
    return cells.view(np.uint8).reshape(length, width)


def _join(pieces: Sequence[pa.Array], length: int) -> pa.Array:
    if not pieces:
        return pa.repeat(pa.scalar(b"", pa.large_binary()), length)
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))


def _binary(offsets: Numbers, data: Numbers) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _encode_value(place: Place, value: Any) -> bytes:
    if value is None:
        return _NULL
    if place.fields is not None:
        return _PRESENT + b"".join(map(_encode_value, place.fields, place.field_values(value)))
    if place.fixed is None:
        content = place.content(value)
        if pa.types.is_decimal(place.type):
            unscaled = int.from_bytes(content, "big", signed=True)
            return _PRESENT + (unscaled + (1 << 127)).to_bytes(_BIG_DECIMAL_BYTES, "big")
        return _PRESENT + content.replace(_ZERO, _ESCAPED_ZERO) + _END
    number = place.number(value)
    code, width = place.fixed.code, place.fixed.width
    if code == "?":
        return _PRESENT + bytes([number])
    if code in "fd":
        if math.isnan(number):
            number = float("nan")
        number = 0.0 if number == 0 else number
    place.check_packs(number)
    bits = int.from_bytes(struct.pack(f">{code}", number), "big")
    sign = 1 << (8 * width - 1)
    if code in "fd" and bits & sign:
        bits ^= 2 * sign - 1
    else:
        bits ^= sign
    return _PRESENT + bits.to_bytes(width, "big")
