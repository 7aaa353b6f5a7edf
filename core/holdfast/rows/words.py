"""Word arithmetic under the bulk codecs.

Everything in an UnsafeRow starts on an 8-byte boundary, so the codecs see rows as one array of 64-bit words and
address it with arrays of word positions. What is left to this module is getting bytes that are not aligned (Arrow's
strings) in and out of such words, many at a time.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Bools: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

WORD = np.dtype("<u8")
MAX_INT32 = 2**31 - 1

# Behind the strings, so that element count + n is n zero bytes.
_PADDING = pa.array([bytes(n) for n in range(8)], pa.large_binary())


def offsets_of(sizes: Ints) -> Ints:
    """Turn sizes into Arrow's offsets: one more than there are sizes, starting at zero."""
    offsets = np.empty(len(sizes) + 1, np.int64)
    offsets[0] = 0
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def ranges(starts: Ints, counts: Ints, offsets: Ints | None = None) -> Ints:
    """Concatenate ``start, start + 1, ...`` of each count; `offsets` spares computing ``offsets_of(counts)``."""
    if offsets is None:
        offsets = offsets_of(counts)
    positions = np.repeat(starts - offsets[:-1], counts)
    positions += np.arange(offsets[-1])
    return positions


def load_words(data: Numbers, starts: Ints, counts: Ints) -> Words:
    """Copy `counts` whole words from each byte position in `starts`, one after the other.

    `data` must reach 7 bytes beyond the last byte of interest (see `padded`).
    """
    offsets = offsets_of(counts)
    positions = np.repeat(starts - 8 * offsets[:-1], counts)
    positions += 8 * np.arange(offsets[-1])
    # A view with a stride of one byte: element i is the word that begins at byte i, aligned or not.
    at_any_byte = np.ndarray((max(len(data) - 7, 0),), WORD, data, 0, (1,))
    return at_any_byte[positions]


def load_strings(buffer: pa.Buffer | None, offsets: Ints) -> Words:
    """Copy byte strings as words, each zero-padded to whole words.

    Arrow copies them, as every second element of: a string, its padding, the next string, ...
    """
    count = len(offsets) - 1
    if buffer is None or not count:
        return np.zeros(0, WORD)
    strings = pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), buffer])
    turns = np.empty((count, 2), np.int64)
    turns[:, 0] = np.arange(count)
    turns[:, 1] = (offsets[:-1] - offsets[1:] & 7) + count
    copied = pc.take(pa.concat_arrays([strings, _PADDING]), pa.array(turns.ravel()), boundscheck=False)
    total = int((np.diff(offsets) + 7 >> 3).sum())
    return np.frombuffer(copied.buffers()[2], WORD, total)


def padded(buffer: pa.Buffer | None, start: int, end: int) -> Numbers:
    """Bytes `start` to `end` of a buffer, with at least 7 more behind them."""
    if buffer is None:
        return np.zeros(8, np.uint8)
    whole = np.frombuffer(buffer, np.uint8)
    if len(whole) >= end + 7:
        return whole[start : end + 7]
    # Nothing says what lies behind a buffer, so its last words are read from a copy.
    copy = np.zeros(end - start + 8, np.uint8)
    copy[: end - start] = whole[start:end]
    return copy


def offsets_in(array: pa.Array, *, large: bool) -> Ints:
    """Arrow's offsets of a binary, list or map array, as they are: a slice does not start at zero."""
    width = 8 if large else 4
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(1, np.int64)
    raw = np.frombuffer(buffer, f"<i{width}", len(array) + 1, array.offset * width)
    return raw.astype(np.int64, copy=False)


def values_in(array: pa.Array, dtype: str) -> Numbers:
    """Arrow's values of a fixed-width array as plain numbers, whatever lies under nulls included."""
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * np.dtype(dtype).itemsize)


def bits_in(buffer: pa.Buffer, offset: int, length: int) -> Bools:
    """Unpack one of Arrow's bitmaps."""
    packed = np.frombuffer(buffer, np.uint8)[offset >> 3 : (offset + length + 7) >> 3]
    return np.unpackbits(packed, count=(offset & 7) + length, bitorder="little")[offset & 7 :].view(np.bool_)


def nulls_in(array: pa.Array) -> Bools | None:
    """Which elements are null; None when none is."""
    if array.null_count == 0:
        return None
    return ~bits_in(array.buffers()[0], array.offset, len(array))


def bitmap(bits: Bools) -> pa.Buffer:
    """Pack one of Arrow's bitmaps."""
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def validity(nulls: Bools | None) -> pa.Buffer | None:
    """Arrow's validity bitmap."""
    return None if nulls is None else bitmap(~nulls)
