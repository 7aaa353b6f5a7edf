"""Sorted access: which indexes a store keeps beside its pairs, and how their entries are spelled.

An entry is the beginning of the sort key, a hash of the key that tells equal beginnings apart, and as its value the
stored key. Only keys that come or go change an index; new values do not.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast import KeyIndex
from holdfast.errors import CorruptState, InvalidRequest, InvalidSchema
from holdfast_lmdb.layout import LONGEST_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

_HASH = 16
_LONGEST_SORT_KEY = LONGEST_KEY - _HASH

UNSORTABLE = b"\xff"
"""Stands for the sort key of what is no row of the key's schema; scans look at such keys too. None begins like it."""


@dataclass(frozen=True, slots=True)
class Span:
    """The index entries from ``start`` up to the last that begins with ``end`` or with something less."""

    start: bytes
    end: bytes | None

    def is_past(self, entry: bytes) -> bool:
        """Whether an entry comes after the span."""
        return self.end is not None and entry[: len(self.end)] > self.end


@dataclass(frozen=True, slots=True)
class Order:
    """One index: the name of its database, and the columns it goes by."""

    name: bytes
    columns: KeyIndex
    first: KeyIndex
    """The first of these columns alone."""

    def sort_keys(self, keys: Sequence[bytes]) -> list[bytes]:
        """The beginnings of the sort keys of ``keys``."""
        try:
            found = self.columns.sort_keys(keys)
        except (CorruptState, InvalidRequest):
            found = list(map(self._sort_key, keys))
        return [key[:_LONGEST_SORT_KEY] for key in found]

    def _sort_key(self, key: bytes) -> bytes:
        try:
            return self.columns.sort_keys([key])[0]
        except (CorruptState, InvalidRequest):
            return UNSORTABLE

    def entries(self, keys: Sequence[bytes]) -> list[bytes]:
        """The index entries of ``keys``."""
        hashed = (hashlib.blake2b(key, digest_size=_HASH).digest() for key in keys)
        return [sort_key + digest for sort_key, digest in zip(self.sort_keys(keys), hashed, strict=True)]

    def range(self, start: bytes | None, end: bytes | None) -> Span:
        """Where the keys are whose first indexed column lies between those of two rows."""
        low = b"" if start is None else self.first.sort_key(start)[:_LONGEST_SORT_KEY]
        return Span(low, None if end is None else self.first.sort_key(end)[:_LONGEST_SORT_KEY])

    def prefix(self, prefix: bytes, columns: int) -> Span:
        """Where the keys are whose first columns are those of the row ``prefix``."""
        beginning = self.columns.sort_prefix(prefix, columns)[:_LONGEST_SORT_KEY]
        return Span(beginning, beginning)


@dataclass(frozen=True, slots=True)
class Orders:
    """The indexes of one store."""

    schema: pa.Schema
    """That of the keys."""
    by_range: Order | None
    by_prefix: Order | None

    @classmethod
    def of(cls, key_schema: pa.Schema, key_index_ordinal: int | None) -> Orders:
        """What ``get_range`` and ``prefix_scan`` need for keys of this schema."""
        by_prefix = by_range = None
        # A prefix of all columns of a key is the key: for one column there is nothing to look up.
        for width in range(len(key_schema), 0, -1) if len(key_schema) > 1 else ():
            try:
                by_prefix = Order(b"prefix", KeyIndex(key_schema, *range(width)), KeyIndex(key_schema, 0))
            except InvalidSchema:
                continue  # an array or a map has no order; the columns before it may have
            break
        if key_index_ordinal == 0 and by_prefix is not None:
            by_range = by_prefix
        elif key_index_ordinal is not None:
            with suppress(InvalidSchema):
                index = KeyIndex(key_schema, key_index_ordinal)
                by_range = Order(b"range", index, index)
        return cls(key_schema, by_range, by_prefix)

    def all(self) -> list[Order]:
        """Each index once."""
        both = (self.by_range, self.by_prefix)
        return list({order.name: order for order in both if order is not None}.values())


def keys_in(span: Span, sorted_keys: Sequence[tuple[bytes, bytes]]) -> Iterable[bytes]:
    """The keys within a span, from pairs of sort key and key in order."""
    for sort_key, key in sorted_keys[bisect_left(sorted_keys, (span.start, b"")) :]:
        if span.is_past(sort_key):
            return
        yield key
