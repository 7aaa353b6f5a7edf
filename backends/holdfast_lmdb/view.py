"""One version: a snapshot of LMDB, and layers of changes over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import StateView
from holdfast_lmdb.key_order import UNSORTABLE, Span
from holdfast_lmdb.layout import all_plain, original, original_value, stored_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast import BytesLike, Changes, Pair
    from holdfast_lmdb.environment import Environment
    from holdfast_lmdb.key_order import Order, Orders
    from holdfast_lmdb.layers import Layer

_CHUNK = 4096
"""Pairs read at once: in between, LMDB is free to grow, and the pairs may be used to change the store."""


class LmdbView(StateView):
    """What one version contains."""

    def __init__(self, environment: Environment, orders: Orders, layers: Sequence[Layer], num_keys: int) -> None:
        """``layers`` have the newest first."""
        self._environment = environment
        self._orders = orders
        self._layers = [layer for layer in layers if layer.changes]
        self._num_keys = num_keys
        self._snapshot = environment.snapshot()

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self._layers:
            return self._stored(keys)
        found: dict[bytes, bytes | None] = {}
        missing = keys
        for layer in self._layers:
            changes = layer.changes
            found.update((key, changes[key]) for key in missing if key in changes)
            missing = [key for key in missing if key not in changes]
        found.update(zip(missing, self._stored(missing), strict=True))
        return [found[key] for key in keys]

    def _stored(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._environment.reading(self._snapshot) as transaction:
            if all_plain(keys):
                return list(map(transaction.get, keys))
            return [original_value(key, transaction.get(stored_key(key))) for key in keys]

    def entries(self) -> Iterator[Pair]:
        changes = self._changes()
        after: bytes | None = None
        while chunk := self._chunk(after):
            after = chunk[-1][0]
            yield from (pair for pair in map(original, chunk) if pair[0] not in changes)
        yield from ((key, value) for key, value in changes.items() if value is not None)

    def _changes(self) -> Changes:
        changes: Changes = {}
        for layer in reversed(self._layers):
            changes.update(layer.changes)
        return changes

    def _chunk(self, after: bytes | None) -> list[Pair]:
        with self._environment.reading(self._snapshot) as transaction, transaction.cursor() as cursor:
            if not _seek(cursor, b"", after):
                return []
            return [pair for pair, _ in zip(cursor.iternext(), range(_CHUNK), strict=False)]

    def range_entries(self, start: BytesLike | None, end: BytesLike | None) -> Iterator[Pair]:
        order = self._orders.by_range
        if order is None:
            return self.entries()
        return self._within(order, order.range(_bytes(start), _bytes(end)))

    def prefix_entries(self, prefix: BytesLike, columns: int) -> Iterator[Pair]:
        order = self._orders.by_prefix
        if order is None:
            return self._single(bytes(prefix)) if len(self._orders.schema) == 1 else self.entries()
        return self._within(order, order.prefix(bytes(prefix), columns))

    def _single(self, key: bytes) -> Iterator[Pair]:
        value = self.get(key)
        if value is not None:
            yield key, value

    def _within(self, order: Order, span: Span) -> Iterator[Pair]:
        seen: set[bytes] = set()
        for layer in self._layers:
            keys = [key for key in layer.keys_in(order, span) if key not in seen]
            seen.update(keys)
            yield from ((key, value) for key, value in zip(keys, self.get_many(keys), strict=True) if value is not None)
        spans = [span] if span.end is None else [span, Span(UNSORTABLE, None)]
        for part in spans:
            after: bytes | None = None
            while True:
                pairs, after = self._indexed(order, part, after)
                yield from (pair for pair in pairs if pair[0] not in seen)
                if after is None:
                    break

    def _indexed(self, order: Order, span: Span, after: bytes | None) -> tuple[list[Pair], bytes | None]:
        """Some pairs by an index, and where to go on."""
        found: list[Pair] = []
        with self._environment.reading(self._snapshot) as transaction:
            index = self._environment.index(order.name)
            with transaction.cursor(index) as cursor:
                if not _seek(cursor, span.start, after):
                    return found, None
                for entry, stored in cursor:
                    if span.is_past(entry):
                        break
                    if len(found) == _CHUNK:
                        return found, after
                    found.append(original((stored, transaction.get(stored))))
                    after = entry
        return found, None

    def num_keys(self) -> int:
        return self._num_keys

    def close(self) -> None:
        self._snapshot.close()


def _seek(cursor: Any, start: bytes, after: bytes | None) -> bool:
    """Go to the first entry from ``start`` on, or the one behind ``after``; False if there is none."""
    if after is None:
        return bool(cursor.set_range(start)) if start else bool(cursor.first())
    if not cursor.set_range(after):
        return False
    return cursor.key() != after or bool(cursor.next())


def _bytes(row: BytesLike | None) -> bytes | None:
    return None if row is None else bytes(row)
