"""Versions that are not in LMDB yet, as what each of them changed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from holdfast_lmdb.key_order import UNSORTABLE, Span, keys_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast import Changes
    from holdfast_lmdb.key_order import Order

_PER_CHANGE = 160
"""About what Python adds to the bytes of a key and a value in a dict."""


class Layer:
    """Changes in memory, laid over whatever is below."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self._sorted: dict[bytes, list[tuple[bytes, bytes]]] = {}

    @cached_property
    def size(self) -> int:
        """Bytes of memory, estimated."""
        values = sum(map(len, filter(None, self.changes.values())))
        return sum(map(len, self.changes)) + values + _PER_CHANGE * len(self.changes)

    def keys_in(self, order: Order, span: Span) -> Iterator[bytes]:
        """The changed keys within a span of an index; the first call sorts them."""
        if order.name not in self._sorted:
            keys = list(self.changes)
            self._sorted[order.name] = sorted(zip(order.sort_keys(keys), keys, strict=True))
        yield from keys_in(span, self._sorted[order.name])
        if span.end is not None:
            yield from keys_in(Span(UNSORTABLE, None), self._sorted[order.name])
