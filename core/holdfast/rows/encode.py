"""Arrow arrays to UnsafeRow bytes, a column at a time.

Two passes. `prepare` measures: it gives, for each column, either the fixed-width values or how many words each
value takes in the variable part. Then every position is known, and `write` puts words where they belong in one
zeroed buffer, nested parts included; nothing is assembled twice.

Inside a nested type only what is not null is prepared, so garbage under a null is never looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.errors import InvalidSchema
from holdfast.rows import decimals
from holdfast.rows.dialect import type_ddl
from holdfast.rows.words import (
    WORD,
    Bools,
    Ints,
    Numbers,
    Words,
    bits_in,
    load_strings,
    nulls_in,
    offsets_in,
    offsets_of,
    ranges,
    values_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Fixed:
    """A column whose values stand in the slots, or side by side in an array."""

    def __init__(self, values: Numbers, nulls: Bools | None) -> None:
        if nulls is not None:
            values = values.copy()
            values[nulls] = 0
        self.values = values
        """Unsigned, at the width they have in an array; zero where null."""
        self.nulls = nulls


class Variable(ABC):
    """A column whose values stand in the variable part; a slot points at them."""

    keeps_room: bool = False
    """Whether a row keeps room for a value that is null, so that it can be set in place later."""

    words: Ints
    """Words that each value takes in the variable part."""
    sizes: Ints
    """Bytes that each slot says it has."""
    nulls: Bools | None = None

    @abstractmethod
    def write(self, out: Words, at: Ints) -> None:
        """Write each value at its word position in `out`, which is zero there."""


class Rows(Variable):
    """Structs, none null: one UnsafeRow each."""

    def __init__(self, fields: Sequence[Fixed | Variable], length: int) -> None:
        self._fields = fields
        self._null_words = (len(fields) + 63) // 64
        self._header = self._null_words + len(fields)
        self.words = np.full(length, self._header, np.int64)
        for field in fields:
            if isinstance(field, Variable):
                self.words += _room(field)
        self.sizes = self.words * 8

    def write(self, out: Words, at: Ints) -> None:
        # Rows without a variable part that fill the buffer are its lines: whole columns of a matrix are faster than
        # scattered words.
        lines = out.reshape(-1, self._header) if len(out) == len(at) * self._header > 0 else None

        def put(cell: int, values: Numbers) -> None:
            if lines is None:
                out[at + cell] = values
            else:
                lines[:, cell] = values

        for word in range(self._null_words):
            nulls = _null_word([field.nulls for field in self._fields[word * 64 : word * 64 + 64]])
            if nulls is not None:
                put(word, nulls)
        cursor = np.full(len(at), self._header, np.int64)
        for cell, field in enumerate(self._fields, self._null_words):
            if isinstance(field, Fixed):
                put(cell, field.values)
                continue
            slots = cursor << 35 | field.sizes
            if field.nulls is not None and not field.keeps_room:
                slots[field.nulls] = 0
            put(cell, slots.view(WORD))
            field.write(out, at + cursor)
            cursor += _room(field)


class Lists(Variable):
    """Arrays, none null: UnsafeArrayData."""

    def __init__(self, counts: Ints, elements: Fixed | Variable) -> None:
        self._counts = counts
        self._offsets = offsets_of(counts)
        self._elements = elements
        self._header = 1 + ((counts + 63) >> 6)
        width = elements.values.itemsize if isinstance(elements, Fixed) else 8
        self._first_body = self._header + ((counts * width + 7) >> 3)
        self.words = self._first_body
        if isinstance(elements, Variable):
            # Where each element begins if all bodies of all arrays stood one after the other.
            self._bodies = offsets_of(elements.words)
            self.words = self.words + np.diff(self._bodies[self._offsets])
        self.sizes = self.words * 8

    def write(self, out: Words, at: Ints) -> None:
        out[at] = self._counts
        elements = self._elements
        if elements.nulls is not None:
            self._write_nulls(out, at, elements.nulls)
        if isinstance(elements, Fixed):
            width = elements.values.itemsize
            first = (at + self._header) * (8 // width)
            out.view(elements.values.dtype)[ranges(first, self._counts, self._offsets)] = elements.values
            return
        first_body = self._first_body - self._bodies[self._offsets[:-1]]
        body = self._bodies[:-1] + np.repeat(first_body, self._counts)
        slots = body << 35 | elements.sizes
        if elements.nulls is not None:
            slots[elements.nulls] = 0
        out[ranges(at + self._header, self._counts, self._offsets)] = slots
        elements.write(out, body + np.repeat(at, self._counts))

    def _write_nulls(self, out: Words, at: Ints, nulls: Bools) -> None:
        element = np.flatnonzero(nulls)
        owner = np.searchsorted(self._offsets, element, "right") - 1
        index = element - self._offsets[owner]
        byte = (at[owner] + 1) * 8 + (index >> 3)
        np.bitwise_or.at(out.view(np.uint8), byte, (1 << (index & 7)).astype(np.uint8))


class Maps(Variable):
    """Maps, none null: the size of the array of keys, that array, the array of values."""

    def __init__(self, keys: Lists, values: Lists) -> None:
        self._keys = keys
        self._values = values
        self.words = 1 + keys.words + values.words
        self.sizes = self.words * 8

    def write(self, out: Words, at: Ints) -> None:
        out[at] = self._keys.sizes
        self._keys.write(out, at + 1)
        self._values.write(out, at + 1 + self._keys.words)


class Strings(Variable):
    """Strings or binaries, none null."""

    def __init__(self, array: pa.Array) -> None:
        self._offsets = offsets_in(array, large=array.type.id in _LARGE)
        self._buffer = array.buffers()[2]
        self.sizes = np.diff(self._offsets)
        self.words = (self.sizes + 7) >> 3

    def write(self, out: Words, at: Ints) -> None:
        out[ranges(at, self.words)] = load_strings(self._buffer, self._offsets)


class BigDecimals(Variable):
    """Decimals of more than 18 digits, none null."""

    keeps_room = True

    def __init__(self, low: Words, high: Words) -> None:
        self.sizes, self._first, self._second = decimals.minimal_bytes(low, high)
        self.words = (self.sizes + 7) >> 3

    def write(self, out: Words, at: Ints) -> None:
        out[at] = self._first
        long = self.words > 1
        out[at[long] + 1] = self._second[long]


class Sparse(Variable):
    """A column with nulls: the values of another, where they belong."""

    def __init__(self, nulls: Bools, present: Variable) -> None:
        self.nulls = nulls
        self.keeps_room = present.keeps_room
        self._present = present
        self._where = ~nulls
        self.words = np.zeros(len(nulls), np.int64)
        self.words[self._where] = present.words
        self.sizes = np.zeros(len(nulls), np.int64)
        self.sizes[self._where] = present.sizes

    def write(self, out: Words, at: Ints) -> None:
        self._present.write(out, at[self._where])


def rows_of(
    columns: Iterable[pa.Array], fields: Iterable[pa.Field], length: int, path: str = "", first_row: int = 0
) -> Rows:
    """Prepare structs, none null, given as the arrays of their fields; `first_row` is the first one's number."""
    prepared = [_field(column, field, path, first_row) for column, field in zip(columns, fields, strict=True)]
    return Rows(prepared, length)


def write_all(pieces: Sequence[Rows]) -> pa.Array:
    """Write the rows of all pieces into one array."""
    sizes = [piece.sizes for piece in pieces] or [np.zeros(0, np.int64)]
    offsets = offsets_of(np.concatenate(sizes))
    out = np.zeros(offsets[-1] >> 3, WORD)
    first = 0
    for piece in pieces:
        last = first + len(piece.sizes)
        at = offsets[first : last + 1] >> 3
        piece.write(out[at[0] : at[-1]], at[:-1] - at[0])
        first = last
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), first, buffers)


def prepare(array: pa.Array, data_type: pa.DataType, path: str) -> Fixed | Variable:
    """Measure one column. The array has `data_type`, or its variant with long offsets (see `conform`)."""
    kind = data_type.id
    if kind in FIXED_WIDTH:
        return Fixed(values_in(array, f"<u{FIXED_WIDTH[kind]}"), nulls_in(array))
    nulls = nulls_in(array)
    if kind == _BOOL:
        buffer = array.buffers()[1]
        values = bits_in(buffer, array.offset, len(array)) if len(array) else np.zeros(0, np.bool_)
        return Fixed(values.view(np.uint8), nulls)
    if kind == _DECIMAL:
        small = data_type.precision <= decimals.MAX_LONG_DIGITS
        if nulls is not None and not small:
            array = array.drop_null()
        low, high = _decimal_words(array, data_type, nulls if small else None, path)
        if small:
            return Fixed(low, nulls)
        return _sparse(nulls, BigDecimals(low, high))
    if nulls is not None:
        array = array.drop_null()
    return _sparse(nulls, _variable(array, data_type, path))


def _variable(array: pa.Array, data_type: pa.DataType, path: str) -> Variable:
    kind = data_type.id
    if kind == _STRUCT:
        columns = [array.field(i) for i in range(data_type.num_fields)]
        return rows_of(columns, data_type, len(array), f"{path}.")
    if kind == _LIST:
        offsets = offsets_in(array, large=array.type.id in _LARGE)
        elements = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        return Lists(np.diff(offsets), _field(elements, data_type.value_field, f"{path}."))
    if kind == _MAP:
        offsets = offsets_in(array, large=False)
        counts, first, length = np.diff(offsets), offsets[0], offsets[-1] - offsets[0]
        return Maps(
            Lists(counts, _field(array.keys.slice(first, length), data_type.key_field, f"{path}.")),
            Lists(counts, _field(array.items.slice(first, length), data_type.item_field, f"{path}.")),
        )
    if kind == _STRING:
        try:
            # Spark lets a string have any bytes. Python does not, and would learn of it only when it reads the state.
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidSchema(f"column {path!r} is string, and a value is not: {error}") from error
    return Strings(array)


def _field(array: pa.Array, field: pa.Field, path: str, first_row: int = 0) -> Fixed | Variable:
    nested = bool(path)
    path += field.name
    if array.null_count and not field.nullable:
        nulls = nulls_in(array)
        # Inside a nested column an element's number says nothing about its row's.
        at = "" if nested or nulls is None else f" in row {first_row + int(np.argmax(nulls))}"
        raise InvalidSchema(f"column {path!r} is {type_ddl(field.type)} not null, and has a null{at}")
    return prepare(array, field.type, path)


def _decimal_words(array: pa.Array, data_type: pa.DataType, nulls: Bools | None, path: str) -> tuple[Words, Words]:
    buffer = array.buffers()[1]
    if len(array) == 0:
        return np.zeros(0, WORD), np.zeros(0, WORD)
    pairs = np.frombuffer(buffer, WORD, 2 * len(array), 16 * array.offset)
    low, high = pairs[0::2], pairs[1::2]
    wrong = decimals.overflows(low, np.ascontiguousarray(high), data_type.precision)
    if nulls is not None:
        wrong &= ~nulls
    if wrong.any():
        # Arrow does not check this when arrays are made from buffers, and Spark would write a null instead.
        value = array[int(np.argmax(wrong))].as_py()
        raise InvalidSchema(f"column {path!r} is {type_ddl(data_type)}, and {value} has more digits")
    return np.ascontiguousarray(low), np.ascontiguousarray(high)


def _sparse(nulls: Bools | None, present: Variable) -> Variable:
    return present if nulls is None else Sparse(nulls, present)


def _room(field: Variable) -> Ints | int:
    """Words that a row has for the field."""
    return 2 if field.keeps_room else field.words


def _null_word(nulls: list[Bools | None]) -> Words | None:
    word: Words | None = None
    for bit, column in enumerate(nulls):
        if column is not None:
            shifted = column.astype(WORD) << np.uint64(bit)
            word = shifted if word is None else word | shifted
    return word


_BOOL = pa.bool_().id
_DECIMAL = pa.decimal128(1).id
_LIST = pa.list_(pa.null()).id
_MAP = pa.map_(pa.int8(), pa.int8()).id
_STRING = pa.string().id
_STRUCT = pa.struct([]).id
_LARGE = frozenset({pa.large_string().id, pa.large_binary().id, pa.large_list(pa.null()).id})

FIXED_WIDTH = {
    pa.int8().id: 1,
    pa.int16().id: 2,
    pa.int32().id: 4,
    pa.int64().id: 8,
    pa.float32().id: 4,
    pa.float64().id: 8,
    pa.date32().id: 4,
    pa.timestamp("us").id: 8,
}
"""Bytes per value of the types that Arrow and UnsafeArrayData keep alike."""
