"""UnsafeRow bytes to Arrow arrays, a column at a time.

Every offset, size and count is checked against the part of the row that holds it before anything is read or allocated
through it, so damaged bytes give CorruptState, or values, but never a read outside the row. Only values that are not
null are followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pyarrow as pa

from holdfast.errors import CorruptState, InvalidRequest
from holdfast.rows import decimals
from holdfast.rows.dialect import type_ddl
from holdfast.rows.encode import FIXED_WIDTH
from holdfast.rows.words import (
    MAX_INT32,
    WORD,
    Bools,
    Ints,
    Numbers,
    Words,
    bitmap,
    load_words,
    offsets_of,
    padded,
    ranges,
    validity,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Spans:
    """Parts of the input, one per value: where they start, how long they are, and what they are, for messages."""

    def __init__(self, start: Ints, size: Ints, column: str, row: Callable[[int], int]) -> None:
        self.start = start
        """First word."""
        self.size = size
        """Bytes, within the part of the input that encloses them."""
        self.column = column
        self.row = row
        """Which row of the input the i-th part belongs to."""

    def __len__(self) -> int:
        return len(self.start)

    def refuse(self, wrong: Bools, problem: str) -> None:
        """Raise CorruptState if anything is wrong, naming the first."""
        if wrong.any():
            self.fail(int(np.argmax(wrong)), problem)

    def fail(self, index: int, problem: str) -> NoReturn:
        raise CorruptState(f"row {self.row(index)}, column {self.column!r}: {problem}")

    def whole_words(self, at_least: int) -> None:
        """Refuse parts that are not a whole number of words, or too few."""
        self.refuse(
            (self.size < 8 * at_least) | (self.size & 7 != 0),
            f"a size that is not a multiple of 8, or under {8 * at_least} bytes",
        )


def decode_rows(
    buffer: pa.Buffer | None, offsets: Ints, schema: pa.Schema, wanted: Sequence[int], first_row: int = 0
) -> list[pa.Array]:
    """Decode the wanted columns of rows that stand side by side in a buffer.

    `first_row` is the first one's number in messages.
    """
    words, start, size = _aligned(buffer, offsets)
    spans = Spans(start, size, "*", lambda index: first_row + index)
    return _row_fields(words, spans, schema, "", wanted, side_by_side=True)


def _aligned(buffer: pa.Buffer | None, offsets: Ints) -> tuple[Words, Ints, Ints]:
    """Return rows in a buffer as (words, first word of each, size of each).

    Sizes are floored to whole words: rows that Spark up to 2.2 wrote may have a few bytes more, which Spark ignores.
    """
    sizes = np.diff(offsets)
    if buffer is None or not len(sizes):
        return np.zeros(0, WORD), np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    first, end = int(offsets[0]), int(offsets[-1])
    if not np.any(sizes & 7):
        data = np.frombuffer(buffer, np.uint8)[first:end]
        return data.view(WORD), (offsets[:-1] - first) >> 3, sizes
    counts = sizes >> 3
    words = load_words(padded(buffer, first, end), offsets[:-1] - first, counts)
    return words, offsets_of(counts)[:-1], counts * 8


def _row_fields(
    words: Words,
    rows: Spans,
    fields: pa.Schema | pa.StructType,
    path: str,
    wanted: Sequence[int],
    *,
    side_by_side: bool = False,
) -> list[pa.Array]:
    null_words = (len(fields) + 63) // 64
    header = null_words + len(fields)
    rows.whole_words(header)
    arrays = []
    # Rows side by side that have no variable part are lines of a matrix; strided reads are faster than gathered ones.
    no_more = side_by_side and len(words) == len(rows) * header > 0
    lines = words.reshape(-1, header) if no_more else None
    for index in wanted:
        field = fields.field(index)
        bits = words[rows.start + (index >> 6)] if lines is None else lines[:, index >> 6]
        slots = words[rows.start + null_words + index] if lines is None else lines[:, null_words + index]
        nulls = _nulls((bits >> np.uint64(index & 63) & np.uint64(1)).astype(np.bool_))
        named = Spans(rows.start, rows.size, path + field.name, rows.row)
        arrays.append(_column(words, named, field, slots, nulls, 8 * header, named))
    return arrays


def _column(
    words: Words,
    holder: Spans,
    field: pa.Field,
    slots: Numbers,
    nulls: Bools | None,
    lowest: Ints | int,
    values: Spans,
) -> pa.Array:
    """Decode one column from its slots.

    `holder` has the row or array around each value, which its offset counts from and must stay in, at `lowest` or
    above; `values` only names the values in messages.
    """
    if nulls is not None and not field.nullable:
        values.refuse(nulls, f"null, but the column is {type_ddl(field.type)} not null")
    if _is_fixed(field.type):
        return _fixed(field.type, slots, nulls, values)
    size = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64)
    offset = (slots >> np.uint64(32)).astype(np.int64)
    present = Spans(holder.start + (offset >> 3), size, values.column, values.row)
    wrong = (offset < lowest) | (offset & 7 != 0) | (offset + (size + 7 & ~7) > holder.size)
    if nulls is not None:
        wrong &= ~nulls
    values.refuse(wrong, "a value that lies outside its row")
    if nulls is not None:
        kept = np.flatnonzero(~nulls)
        row = values.row
        present = Spans(present.start[kept], present.size[kept], values.column, lambda index: row(int(kept[index])))
    array = _variable(words, present, field.type)
    if nulls is None:
        return array
    return array.take(pa.array(np.cumsum(~nulls) - 1, mask=nulls))


def _fixed(data_type: pa.DataType, slots: Numbers, nulls: Bools | None, values: Spans) -> pa.Array:
    length = len(slots)
    if pa.types.is_boolean(data_type):
        data = bitmap((slots & slots.dtype.type(0xFF)).astype(np.bool_))
    elif pa.types.is_decimal(data_type):
        return _decimal(data_type, slots, (slots.view("<i8") >> 63).view(WORD), nulls, values)
    else:
        data = pa.py_buffer(np.ascontiguousarray(slots, f"<u{FIXED_WIDTH[data_type.id]}"))
    return pa.Array.from_buffers(data_type, length, [validity(nulls), data])


def _decimal(data_type: pa.DataType, low: Numbers, high: Numbers, nulls: Bools | None, values: Spans) -> pa.Array:
    wrong = decimals.overflows(low, high, data_type.precision)
    if nulls is not None:
        wrong &= ~nulls
    values.refuse(wrong, f"more digits than {type_ddl(data_type)} has")
    pairs = np.empty((len(low), 2), WORD)
    pairs[:, 0] = low
    pairs[:, 1] = high
    return pa.Array.from_buffers(data_type, len(low), [validity(nulls), pa.py_buffer(pairs)])


def _variable(words: Words, values: Spans, data_type: pa.DataType) -> pa.Array:
    """Decode values that stand in the variable part; none is null."""
    if pa.types.is_struct(data_type):
        fields = _row_fields(words, values, data_type, f"{values.column}.", range(data_type.num_fields))
        return pa.Array.from_buffers(data_type, len(values), [None], children=fields)
    if pa.types.is_map(data_type):
        return _maps(words, values, data_type)
    if pa.types.is_list(data_type):
        offsets, elements = _list(words, values, data_type.value_field)
        return pa.Array.from_buffers(data_type, len(values), [None, offsets], children=[elements])
    if pa.types.is_decimal(data_type):
        values.refuse((values.size < 1) | (values.size > 16), "a decimal that is not 1 to 16 bytes")
        long = values.size > 8
        second = np.zeros(len(values), WORD)
        second[long] = words[values.start[long] + 1]
        low, high = decimals.from_minimal_bytes(words[values.start], second, values.size)
        return _decimal(data_type, low, high, None, values)
    return _strings(words, values, data_type)


def _strings(words: Words, values: Spans, data_type: pa.DataType) -> pa.Array:
    # The values are some of the pieces that their ends cut the input into: Arrow copies every second one. They stand in
    # order, because rows do, and arrays whose elements do not were refused.
    ends = np.zeros(2 * len(values) + 1, np.int64)
    ends[0:-1:2] = 8 * values.start
    ends[1::2] = ends[0:-1:2] + values.size
    ends[-1] = ends[-2] if len(values) else 0
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(words)]
    pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * len(values), buffers)
    binary = pieces.take(pa.array(np.arange(0, 2 * len(values), 2)))
    try:
        return binary.cast(data_type)
    except pa.ArrowInvalid:
        _int32(offsets_of(values.size), values.column)
        for index, text in enumerate(binary):
            try:
                text.as_py().decode()
            except UnicodeDecodeError as error:
                values.fail(index, f"not UTF-8: {error}")
        raise


def _list(words: Words, values: Spans, field: pa.Field) -> tuple[pa.Buffer, pa.Array]:
    """Decode UnsafeArrayData into Arrow's offsets and elements."""
    values.whole_words(1)
    count = words[values.start].view("<i8")
    # Each element takes at least a bit and a byte, so a count that passes here cannot make anything large below.
    values.refuse((count < 0) | (count > values.size), "an element count that its size does not allow")
    column = f"{values.column}.{field.name}"
    fixed = _is_fixed(field.type)
    width = _width(field.type) if fixed else 8
    header = 1 + (count + 63 >> 6)
    first_body = 8 * header + (count * width + 7 & ~7)
    values.refuse(first_body > values.size, "an element count that its size does not allow")

    offsets = offsets_of(count)
    buffer = _int32(offsets, values.column)
    elements = Spans(
        np.zeros(0, np.int64),
        np.zeros(0, np.int64),
        column,
        lambda index: values.row(int(np.searchsorted(offsets, index, "right")) - 1),
    )
    index = ranges(np.zeros(len(values), np.int64), count, offsets)
    start = np.repeat(values.start, count)
    nulls = _nulls((words[start + 1 + (index >> 6)] >> (index & 63).view(WORD) & np.uint64(1)).astype(np.bool_))
    cells = ranges((values.start + header) * (8 // width), count, offsets)
    slots = words.view(f"<u{width}")[cells]
    if fixed:
        return buffer, _column(words, elements, field, slots, nulls, 0, elements)
    holder = Spans(start, np.repeat(values.size, count), column, elements.row)
    _refuse_overlap(slots, nulls, index, elements)
    return buffer, _column(words, holder, field, slots, nulls, np.repeat(first_body, count), elements)


def _refuse_overlap(slots: Words, nulls: Bools | None, index: Ints, elements: Spans) -> None:
    """Refuse elements that are not one behind the other.

    Spark writes them so, and if many could point at the same large part, a small damaged row would grow without bound.
    """
    kept = np.arange(len(slots)) if nulls is None else np.flatnonzero(~nulls)
    offset = (slots[kept] >> np.uint64(32)).astype(np.int64)
    end = offset + (slots[kept] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    owner = kept - index[kept]
    wrong = (offset[1:] < end[:-1]) & (owner[1:] == owner[:-1])
    if wrong.any():
        elements.fail(int(kept[int(np.argmax(wrong)) + 1]), "elements that overlap or are out of order")


def _maps(words: Words, values: Spans, data_type: pa.DataType) -> pa.Array:
    values.whole_words(1)
    key_size = words[values.start].view("<i8")
    values.refuse(
        (key_size < 0) | (key_size > values.size - 8) | (key_size & 7 != 0),
        "a size of the keys that the map's size does not allow",
    )
    keys = Spans(values.start + 1, key_size, values.column, values.row)
    items = Spans(values.start + 1 + (key_size >> 3), values.size - 8 - key_size, values.column, values.row)
    if len(values):
        # The two arrays' counts are their first words; the check that there is one comes first.
        keys.whole_words(1)
        items.whole_words(1)
        values.refuse(words[keys.start] != words[items.start], "a map with more keys than values, or fewer")
    offsets, key_array = _list(words, keys, data_type.key_field)
    _, item_array = _list(words, items, data_type.item_field)
    # Arrow aborts the process if it does not know yet that a map has no null keys. Asking makes it count; the answer
    # is 0, because the field is not nullable and _list has refused nulls.
    key_array.null_count  # noqa: B018
    entries = pa.Array.from_buffers(
        data_type.field(0).type, len(key_array), [None], null_count=0, children=[key_array, item_array]
    )
    return pa.Array.from_buffers(data_type, len(values), [None, offsets], children=[entries])


def _nulls(bits: Bools) -> Bools | None:
    return bits if bits.any() else None


def _is_fixed(data_type: pa.DataType) -> bool:
    if pa.types.is_decimal(data_type):
        return bool(data_type.precision <= decimals.MAX_LONG_DIGITS)
    return pa.types.is_boolean(data_type) or data_type.id in FIXED_WIDTH


def _width(data_type: pa.DataType) -> int:
    """Bytes of a fixed-width value in an array."""
    return 1 if pa.types.is_boolean(data_type) else FIXED_WIDTH.get(data_type.id, 8)


def _int32(offsets: Ints, column: str) -> pa.Buffer:
    if offsets[-1] > MAX_INT32:
        raise InvalidRequest(f"column {column!r} of these rows exceeds 2 GiB; decode fewer rows at a time")
    return pa.py_buffer(offsets.astype(np.int32))
