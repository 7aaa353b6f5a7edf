"""One version: the pairs of the newest one as they were when the view was made, and what to undo in them."""

from __future__ import annotations

from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING

from holdfast import StateView
from holdfast.errors import IllegalState
from holdfast_rocksdb.layout import after, index_prefix, pairs, pairs_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rocksdict import Rdict, RdictIter, Snapshot

    from holdfast import BytesLike, Changes, Pair
    from holdfast.errors import HoldfastError
    from holdfast_rocksdb.key_order import Order, Orders, Span

_PAIRS_PER_READ = 1_000


class RocksView(StateView):
    """A held version: the newest one as it is now, and what to undo in it."""

    def __init__(
        self,
        database: Rdict,
        generation: int,
        orders: Orders,
        undone: Changes,
        num_keys: int,
        failure: Callable[[Exception], HoldfastError],
    ) -> None:
        self._failure = failure
        self._orders = orders
        self._generation = generation
        self._prefix = pairs_prefix(generation)
        self._end = pairs_prefix(generation + 1)
        self._num_keys = num_keys
        self._undone = undone
        # An iterator shows the database as it was when it was made. One that is made from rocksdict's snapshot later
        # would not: it shows the database as it is by then.
        self._snapshot: Snapshot | None = database.snapshot()
        self._cursor: RdictIter | None = database.iter()
        self._cursor_lock = Lock()

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        prefix, undone = self._prefix, self._undone
        return [undone[key] if key in undone else self._stored(prefix + key) for key in keys]

    def _stored(self, key: bytes) -> bytes | None:
        if self._snapshot is None:
            raise _closed()
        try:
            value: bytes = self._snapshot[key]
        except Exception as error:
            # A snapshot has no other way to say it.
            if str(error) == "key not found":
                return None
            raise self._failure(error) from error
        return value

    def entries(self) -> Iterator[Pair]:
        if self._cursor is None:
            raise _closed()
        return self._entries(self._cursor)

    def _entries(self, cursor: RdictIter) -> Iterator[Pair]:
        skip, undone = len(self._prefix), self._undone
        start = self._prefix
        while chunk := self._chunk(cursor, start, self._end):
            for key, value in chunk:
                if key[skip:] not in undone:
                    yield key[skip:], value
            start = after(chunk[-1][0])
        yield from self._put_back()

    def _put_back(self) -> Iterator[Pair]:
        """The pairs that were replaced since."""
        for key, before in self._undone.items():
            if before is not None:
                yield key, before

    def _chunk(self, cursor: RdictIter, start: bytes, end: bytes) -> list[Pair]:
        """The next pairs from ``start`` on: all iterators of this view share its cursor."""
        try:
            with self._cursor_lock:
                return list(islice(pairs(cursor, start, end), _PAIRS_PER_READ))
        except Exception as error:
            raise self._failure(error) from error

    def range_entries(self, start: BytesLike | None, end: BytesLike | None) -> Iterator[Pair]:
        order = self._orders.by_range
        if order is None:
            return self.entries()
        return self._within(order, order.range(_bytes(start), _bytes(end)))

    def prefix_entries(self, prefix: BytesLike, columns: int) -> Iterator[Pair]:
        order = self._orders.by_prefix
        if order is not None:
            return self._within(order, order.prefix(bytes(prefix), columns))
        return self._single(bytes(prefix)) if self._orders.columns == 1 else self.entries()

    def _single(self, key: bytes) -> Iterator[Pair]:
        value = self.get(key)
        if value is not None:
            yield key, value

    def _within(self, order: Order, spans: Iterator[Span]) -> Iterator[Pair]:
        if self._cursor is None:
            raise _closed()
        return self._indexed(self._cursor, order, spans)

    def _indexed(self, cursor: RdictIter, order: Order, spans: Iterator[Span]) -> Iterator[Pair]:
        """The pairs by an index, and those that were replaced since, wherever they are."""
        prefix, undone = index_prefix(order, self._generation), self._undone
        end = index_prefix(order, self._generation + 1)
        for span in spans:
            start, is_past = prefix + span.start, False
            while not is_past and (chunk := self._chunk(cursor, start, end)):
                keys = []
                for entry, key in chunk:
                    is_past = span.is_past(entry[len(prefix) :])
                    if is_past:
                        break
                    if key not in undone:
                        keys.append(key)
                for key, value in zip(keys, self.get_many(keys), strict=True):
                    if value is not None:
                        yield key, value
                start = after(chunk[-1][0])
        yield from self._put_back()

    def num_keys(self) -> int:
        return self._num_keys

    def close(self) -> None:
        self._snapshot = self._cursor = None


def _closed() -> IllegalState:
    return IllegalState("this view of a RocksDB database is closed")


def _bytes(row: BytesLike | None) -> bytes | None:
    return None if row is None else bytes(row)
