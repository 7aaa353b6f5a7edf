"""One version: a snapshot of LMDB, and a layer of changes over it."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from holdfast import StateView
from holdfast_lmdb.key_order import UNSORTABLE, Span
from holdfast_lmdb.layout import all_plain, original, original_value, stored_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from holdfast import BytesLike, Pair
    from holdfast_lmdb.environment import Environment
    from holdfast_lmdb.key_order import Order, Orders
    from holdfast_lmdb.layers import Layer

_NOT_CHANGED: Any = object()

_CHUNK = 4096
"""Pairs read at once: in between, LMDB is free to grow, and the pairs may be used to change the store."""

_REMEMBERED = 1 << 18
"""Keys that a view remembers to have looked up, at most."""


class LmdbView(StateView):
    """What one version contains."""

    def __init__(self, version: int, environment: Environment, orders: Orders, layer: Layer, num_keys: int) -> None:
        self.version = version
        self._environment = environment
        self._orders = orders
        self._layer = layer
        self._num_keys = num_keys
        self._snapshot = environment.snapshot()
        self._looked_up: dict[bytes, bool] = {}
        """Which keys were asked for, and whether there was a value."""

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        changes = self._layer.changes
        if not changes:
            return self._stored(keys)
        # One look into the layer for each key: in a large dict every look is a cache miss.
        found: list[Any] = list(map(changes.get, keys, repeat(_NOT_CHANGED)))
        missing = [at for at, value in enumerate(found) if value is _NOT_CHANGED]
        for at, value in zip(missing, self._stored([keys[at] for at in missing]), strict=True):
            found[at] = value
        return found

    def _stored(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._environment.reading(self._snapshot) as transaction:
            if all_plain(keys):
                found = list(map(transaction.get, keys))
            else:
                found = [original_value(key, transaction.get(stored_key(key))) for key in keys]
        if len(self._looked_up) < _REMEMBERED:
            self._looked_up.update(zip(keys, (value is not None for value in found), strict=True))
        return found

    def learn_from(self, other: LmdbView) -> None:
        """Take over what another view of the same version was asked for."""
        self._looked_up = other._looked_up

    def count(self, keys: Collection[bytes]) -> int:
        """How many of the keys there are; those that were asked for before are not looked up again."""
        changes, looked_up = self._layer.changes, self._looked_up
        rest = [key for key in keys if key not in changes] if changes else list(keys)
        known = list(map(looked_up.get, rest))
        unknown = [key for key, is_there in zip(rest, known, strict=True) if is_there is None]
        there = sum(filter(None, known)) + sum(value is not None for value in self._stored(unknown))
        if len(rest) == len(keys):
            return there
        return there + sum(changes[key] is not None for key in keys if key in changes)

    def entries(self) -> Iterator[Pair]:
        changes = self._layer.changes
        after: bytes | None = None
        while chunk := self._chunk(after):
            after = chunk[-1][0]
            yield from (pair for pair in map(original, chunk) if pair[0] not in changes)
        yield from ((key, value) for key, value in changes.items() if value is not None)

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
        changes = self._layer.changes
        for key in self._layer.keys_in(order, span):
            value = changes[key]
            if value is not None:
                yield key, value
        spans = [span] if span.end is None else [span, Span(UNSORTABLE, None)]
        for part in spans:
            after: bytes | None = None
            while True:
                pairs, after = self._indexed(order, part, after)
                yield from (pair for pair in pairs if pair[0] not in changes)
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
