"""A store seen as a table: keys and values in Arrow, read and written in bulk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.rows import RowCodec
from holdfast.rows.codec import row_array
from holdfast.rows.words import offsets_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.contract.store import StateStore
    from holdfast.groups.engine import StoreSchema
    from holdfast.rows.conform import RowData
    from holdfast.rows.words import Ints

_KEYS_AT_ONCE = 8_192
"""Keys read in one call: enough to make a round trip cheap, few enough for Python's garbage collector."""

_BYTES_AT_ONCE = 256 << 20


@dataclass(frozen=True)
class Piece:
    """Some of the keys that were asked for, and their state."""

    first: int
    """Position of the first among the keys that were asked for."""
    keys: pa.Array
    """Encoded."""
    known: Ints
    """Which of them have a state, by their position here."""
    states: pa.RecordBatch
    """One row for each that has."""

    def __len__(self) -> int:
        return len(self.keys)


class KeyedState:
    """The rows of one open store."""

    def __init__(self, store: StateStore, schema: StoreSchema) -> None:
        self._store = store
        self._keys = RowCodec(schema.key)
        self._values = RowCodec(schema.value)

    def encode_keys(self, keys: RowData) -> pa.BinaryArray:
        """Keys as the store has them."""
        return self._keys.encode(keys).cast(pa.binary())

    def read(self, keys: pa.RecordBatch) -> Iterator[Piece]:
        """Look up keys, in pieces small enough to hold; a piece may be written before the next is taken."""
        for first in range(0, keys.num_rows, _KEYS_AT_ONCE):
            encoded = self.encode_keys(keys.slice(first, _KEYS_AT_ONCE))
            found = self._store.get_array(encoded)
            known = found.is_valid().to_numpy(zero_copy_only=False)
            values = row_array(found.drop_null())
            # Where the values up to each key begin, whether the key has one or not.
            before = np.concatenate(([0], np.cumsum(known)))
            ends = offsets_in(values, large=pa.types.is_large_binary(values.type))[before]
            for start, end in _spans(ends):
                at = np.flatnonzero(known[start:end])
                some = values.slice(before[start], len(at))
                yield Piece(first + start, encoded[start:end], at, self._values.decode(some))

    def put(self, keys: pa.Array, rows: RowData) -> None:
        """Set the state of keys."""
        values = self._values.encode(rows)
        for start, end in _spans(offsets_in(values, large=True)):
            self._store.put_array(keys[start:end], values[start:end].cast(pa.binary()))

    def remove(self, keys: pa.Array) -> None:
        """Remove the state of keys."""
        self._store.remove_array(keys)


def _spans(ends: Ints) -> Iterator[tuple[int, int]]:
    """Cut rows, given where each begins and the last one ends, so that no part exceeds what is handled at once.

    A row that alone exceeds it is a part of its own.
    """
    start, last = 0, len(ends) - 1
    while start < last:
        end = int(np.searchsorted(ends, ends[start] + _BYTES_AT_ONCE, "right")) - 1
        end = min(max(end, start + 1), last)
        yield start, end
        start = end
