"""Sorted access: which indexes a store keeps beside its pairs.

RocksDB has keys in the order of their bytes, and those of a row are not in the order of its columns. So an index has
entries that are: the sort key, and the key itself to tell equal ones apart. Only keys that come or go change it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast import KeyIndex
from holdfast.errors import CorruptState, InvalidRequest, InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

_UNSORTABLE = b"\xff"
"""The sort key of what is no row of the key's schema; scans look at such keys too. No other begins like it."""


@dataclass(frozen=True, slots=True)
class Span:
    """The entries from ``start`` on, up to the last that begins with ``end`` or something less."""

    start: bytes
    end: bytes | None

    def is_past(self, entry: bytes) -> bool:
        """Whether an entry comes after the span."""
        return self.end is not None and entry[: len(self.end)] > self.end


class Order:
    """One index: the letter of its entries, and the columns it goes by."""

    def __init__(self, letter: bytes, key_schema: pa.Schema, *columns: int) -> None:
        self.letter = letter
        self._columns = KeyIndex(key_schema, *columns)
        self._first = KeyIndex(key_schema, columns[0])

    def sort_keys(self, keys: Sequence[bytes]) -> list[bytes]:
        """The sort keys of ``keys``."""
        try:
            return self._columns.sort_keys(keys)
        except (CorruptState, InvalidRequest):
            return list(map(self._sort_key, keys))

    def _sort_key(self, key: bytes) -> bytes:
        try:
            return self._columns.sort_keys([key])[0]
        except (CorruptState, InvalidRequest):
            return _UNSORTABLE

    def range(self, start: bytes | None, end: bytes | None) -> Iterator[Span]:
        """Where the keys are whose first indexed column lies between those of two rows."""
        low = b"" if start is None else self._first.sort_key(start)
        return _with_unsortable(Span(low, None if end is None else self._first.sort_key(end)))

    def prefix(self, prefix: bytes, columns: int) -> Iterator[Span]:
        """Where the keys are whose first columns are those of the row ``prefix``."""
        beginning = self._columns.sort_prefix(prefix, columns)
        return _with_unsortable(Span(beginning, beginning))


def _with_unsortable(span: Span) -> Iterator[Span]:
    yield span
    if span.end is not None:
        yield Span(_UNSORTABLE, None)


class Orders:
    """The indexes of one store."""

    def __init__(self, key_schema: pa.Schema, key_index_ordinal: int | None) -> None:
        self.columns = len(key_schema)
        self.by_prefix: Order | None = None
        self.by_range: Order | None = None
        # A prefix of all columns of a key is the key: for one column there is nothing to look up.
        for width in range(self.columns, 0, -1) if self.columns > 1 else ():
            with suppress(InvalidSchema):  # an array or a map has no order; the columns before it may have
                self.by_prefix = Order(b"p", key_schema, *range(width))
                break
        if key_index_ordinal == 0 and self.by_prefix is not None:
            self.by_range = self.by_prefix
        elif key_index_ordinal is not None:
            with suppress(InvalidSchema):
                self.by_range = Order(b"r", key_schema, key_index_ordinal)

    def all(self) -> list[Order]:
        """Each index once."""
        return [order for order in dict.fromkeys((self.by_range, self.by_prefix)) if order is not None]
