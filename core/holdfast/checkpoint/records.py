"""The records of a state file: which keys got which values, and which were removed.

Each record is an int32 length and the key, then an int32 length and the value, or -1 if the key was removed; a key
length of -1 ends the file. All lengths are big-endian. Nothing aligns or numbers the records, so only the lengths say
where the next one starts.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn, cast

import numpy as np
import numpy.typing as npt

from holdfast.errors import CorruptState, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

SIZE = struct.Struct(">i")
NONE = -1
"""Instead of a value's length: removed. Instead of a key's: the end."""
END = SIZE.pack(NONE)
MAX_INT32 = 2**31 - 1
MOST_SIZES = 64
"""With more different sizes than this, rows are copied one by one."""
LONG = 1 << 16
"""So are rows of this size, here and on reading."""
FEW, MANY = 32, 4096
"""How many records are read singly before looking for a stretch of records of the same shape, at least and at most."""

Ints = npt.NDArray[np.int64]


def encode_records(keys: Collection[bytes], values: Collection[bytes | None]) -> bytes | bytearray:
    """The records in the given order, and the mark that ends them. A value of None removes its key."""
    count = len(keys)
    if len(values) != count:
        raise InvalidRequest(f"{count} keys with {len(values)} values")
    key_sizes = _sizes(keys)
    removed: list[int] = []
    kept = values
    try:
        value_sizes = _sizes(values)
    except TypeError:  # None has no length
        removed = [index for index, value in enumerate(values) if value is None]
        kept = list(values)
        for index in removed:
            kept[index] = b""
        value_sizes = _sizes(kept)
    if (value_sizes & 7).any():
        # Spark would cut such a value on reading, and so would we.
        raise InvalidRequest(f"a value of {value_sizes[value_sizes & 7 != 0][0]} bytes: rows are a multiple of 8 long")

    ends = np.cumsum(key_sizes + value_sizes + 2 * SIZE.size)
    data = bytearray(int(ends[-1] if count else 0) + len(END))
    # Integers at every byte, aligned or not.
    sizes_in_data = np.ndarray((len(data) - 3,), ">i4", data, strides=(1,))
    value_starts = ends - value_sizes
    key_starts = value_starts - SIZE.size - key_sizes
    sizes_in_data[key_starts - SIZE.size] = key_sizes
    sizes_in_data[value_starts - SIZE.size] = value_sizes
    sizes_in_data[value_starts[removed] - SIZE.size] = NONE
    sizes_in_data[-1] = NONE
    _place(data, keys, key_sizes, key_starts)
    _place(data, cast("Collection[bytes]", kept), value_sizes, value_starts)
    return data


def _sizes(rows: Collection[bytes | None]) -> Ints:
    try:
        # Half the time of fromiter, and most rows are short.
        return np.frombuffer(bytearray(map(len, rows)), np.uint8).astype(np.int64)  # type: ignore[arg-type]
    except ValueError:
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))  # type: ignore[arg-type]
    if (longest := sizes.max()) > MAX_INT32:
        raise InvalidRequest(f"a row of {longest} bytes: state files hold at most {MAX_INT32}")
    return sizes


def _place(data: bytearray, rows: Collection[bytes], sizes: Ints, starts: Ints) -> None:
    """Copy the rows to where they start, all rows of one size at once."""
    different = np.flatnonzero(np.bincount(np.minimum(sizes, LONG))).tolist()
    if len(different) > MOST_SIZES or LONG in different:
        for row, start in zip(rows, starts.tolist(), strict=True):
            data[start : start + len(row)] = row
        return
    joined = b"".join(rows)
    if len(different) == 1 and joined:
        _windows(data, different[0])[starts] = np.frombuffer(joined, f"V{different[0]}")
        return
    joined_starts = np.cumsum(sizes) - sizes
    for size in filter(None, different):
        chosen = np.flatnonzero(sizes == size)
        _windows(data, size)[starts[chosen]] = _windows(joined, size)[joined_starts[chosen]]


def _windows(data: bytes | bytearray, size: int) -> npt.NDArray[np.void]:
    """The stretches of that size, one from every byte."""
    return np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))


PARENT_MARK = b"HFp1"
"""Ends a file that names its parent; one of Spark's ends with the end mark, which is another four bytes."""
PARENT_SIZE = 16


def with_parent(records: bytes | bytearray, parent: bytes) -> bytes:
    """The records, and behind their end mark, where Spark does not look, the identity of the version they change."""
    return b"".join((records, parent, PARENT_MARK))


def split_parent(data: bytes | bytearray) -> tuple[bytes | bytearray, bytes | None]:
    """Undo `with_parent`; what Spark wrote has no parent."""
    if not data.endswith(PARENT_MARK) or len(data) < PARENT_SIZE + len(PARENT_MARK):
        return data, None
    end = len(data) - PARENT_SIZE - len(PARENT_MARK)
    return data[:end], bytes(data[end : end + PARENT_SIZE])


def decode_records(
    data: bytes | bytearray, where: str, *, allow_removed: bool = True, row_checksums: bool = False
) -> tuple[list[bytes], list[bytes | None]]:
    """The keys, and the value of each or None where it was removed.

    Snapshots hold no removals: `allow_removed=False` makes one CorruptState, as is anything but whole records and the
    end mark. A value (not a key) whose length is no multiple of 8 loses the rest, as in Spark: versions before 2.3
    wrote four bytes too many.

    `row_checksums` is for files of a query with `spark.sql.streaming.stateStore.rowChecksum.enabled` (Spark 4.1): their
    values, and the keys of removals, start with a CRC-32C of four bytes, which is dropped unseen. Nothing in the file
    tells of it: without the argument such values come out shifted by four bytes.
    """
    records, _ = split_parent(data)
    reader = _Reader(bytes(records), where, allow_removed, 4 if row_checksums else 0)
    singly = FEW
    while True:
        # Looking for records of the same shape costs as much as reading a few: look less often where there are none.
        singly = FEW if reader.read_alike() >= FEW else min(2 * singly, MANY)
        if reader.read(singly):
            return reader.keys, reader.values


def decode_record_parts(
    parts: Iterable[bytes], where: str, *, allow_removed: bool = True, row_checksums: bool = False
) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
    """The same as `decode_records` of all parts together, but the keys and values of one part after the other.

    For snapshots: they name no parent.
    """
    rest, before, ended = b"", 0, False
    for part in parts:
        reader = _Reader(rest + part, where, allow_removed, 4 if row_checksums else 0, before)
        if ended:
            reader.fail(0, "records after the end mark")
        reader.is_part = True
        singly = FEW
        while not (ended or reader.ran_out):
            singly = FEW if reader.read_alike() >= FEW else min(2 * singly, MANY)
            ended = reader.read(singly)
        yield reader.keys, reader.values
        before += reader.position
        rest = b"" if ended else reader.data[reader.position :]
    if not ended:
        raise CorruptState(f"{where}: byte {before} of the records: the file ends without the end mark")


class _Reader:
    def __init__(self, data: bytes, where: str, allow_removed: bool, skipped: int, before: int = 0) -> None:
        self.data = data
        self.before = before
        """Bytes of the records before the data."""
        self.is_part = False
        """Whether more data follows, so that the last record here may be cut."""
        self.ran_out = False
        self.where = where
        self.allow_removed = allow_removed
        self.skipped = skipped
        """Bytes before each value."""
        self.position = 0
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []

    def read_alike(self) -> int:
        """Read the records from here on that have the sizes of the first, and say how many they were."""
        data, before = self.data, len(self.keys)
        try:
            (key_size,) = SIZE.unpack_from(data, self.position)
            (value_size,) = SIZE.unpack_from(data, self.position + SIZE.size + max(key_size, 0))
        except struct.error:
            return 0
        if not (0 < key_size < LONG and 0 < value_size < LONG) or value_size & 7 or self.skipped:
            return 0
        layout = _layout(key_size, value_size)
        window = FEW
        while count := min(window, (len(data) - self.position) // layout.itemsize):
            records = np.frombuffer(data, layout, count, self.position)
            # Each record that has the sizes ends where the next one starts, so up to the first that has not, all are.
            other = (records["key_size"] != key_size) | (records["value_size"] != value_size)
            alike = int(other.argmax()) if other.any() else count
            self.keys += records["key"][:alike].tolist()
            self.values += records["value"][:alike].tolist()
            self.position += alike * layout.itemsize
            if alike < count:
                break
            window *= 8
        return len(self.keys) - before

    def read(self, count: int) -> bool:
        """Read that many records of any shape, or fewer and the end mark, and say whether that was there."""
        data, skipped, size_at = self.data, self.skipped, SIZE.unpack_from
        add_key, add_value = self.keys.append, self.values.append
        record = position = self.position
        stop = 0
        try:
            for _ in range(count):
                record = position
                (size,) = size_at(data, record)
                if size < 0:
                    self._end(size, record)
                    return True
                start = record + 4
                stop = start + size
                # A slice past the end would be cut silently, but then reading the next size fails.
                add_key(data[start:stop])
                (size,) = size_at(data, stop)
                start = position = stop + 4
                if size < skipped:
                    if size != NONE or not self.allow_removed:
                        self.fail(stop, f"a value of {size} bytes")
                    add_value(None)
                    if skipped:
                        self.keys[-1] = self.keys[-1][skipped:]
                else:
                    position += size
                    add_value(data[start + skipped : position - (size - skipped & 7)])
            record = position
            size_at(data, record)
        except struct.error:
            if self.is_part:
                self._leave_cut_record(record, stop)
                return False
            at = record if record <= len(data) else stop
            self.fail(at, f"the file ends at {len(data)}, inside what starts here, or without the end mark")
        self.position = position
        return False

    def _leave_cut_record(self, record: int, stop: int) -> None:
        """Forget what was read of the last record, which goes on in the next part; ``stop`` is where its key ends."""
        self.ran_out = True
        if len(self.keys) > len(self.values):
            self.keys.pop()
        elif record > len(self.data):
            record = stop - len(self.keys.pop()) - SIZE.size
            self.values.pop()
        self.position = record

    def _end(self, size: int, position: int) -> None:
        if size != NONE:
            self.fail(position, f"a key of {size} bytes")
        if (rest := len(self.data) - position - len(END)) > 0:
            self.fail(position, f"the end mark, but {rest} bytes follow")

    def fail(self, position: int, problem: str) -> NoReturn:
        raise CorruptState(f"{self.where}: byte {self.before + position} of the records: {problem}")


@lru_cache
def _layout(key_size: int, value_size: int) -> np.dtype[np.void]:
    return np.dtype([("key_size", ">i4"), ("key", f"V{key_size}"), ("value_size", ">i4"), ("value", f"V{value_size}")])
