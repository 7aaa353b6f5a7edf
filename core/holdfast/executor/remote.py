"""Stores that live in the state host, as a task sees them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.contract.lifecycle import Lifecycle, State
from holdfast.contract.store import ReadStateStore, StateStore, encoded_row, encoded_rows
from holdfast.errors import Fenced, HoldfastError, InvalidRequest, Unavailable
from holdfast.executor.protocol import BATCH_BYTES, ROWS, Answer, Do, Request, Scan, ScanKind, slices
from holdfast.rpc.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.contract.metrics import StateStoreMetrics
    from holdfast.contract.provider import CommitGuard
    from holdfast.contract.store import BytesLike, Pair
    from holdfast.executor.exchange import HostConnection
    from holdfast.executor.protocol import OpenSession
    from holdfast.ids import StateStoreId

_PENDING_WRITES = 8192
"""Single writes that are held back to travel together."""


UPDATED = "numRowsUpdated"
REMOVED = "numRowsRemoved"


class RemoteReadStore(ReadStateStore):
    """One version, to look at; each bulk call is one exchange of messages with the host."""

    def __init__(self, connection: HostConnection, opening: OpenSession) -> None:
        self._connection = connection
        self._store_id = opening.provider_id.store_id
        self._version = opening.version
        self._lifecycle = Lifecycle()
        self._final_metrics: StateStoreMetrics | None = None
        self._exchange = connection.open(opening)
        try:
            opened, _ = self._exchange.receive(f"opening {self}")
        except BaseException:
            self._exchange.close()
            raise
        self._session = opened.session or ""
        self._identity = opened.identity

    @property
    def id(self) -> StateStoreId:
        return self._store_id

    @property
    def version(self) -> int:
        return self._version

    @property
    def identity(self) -> str | None:
        return self._identity

    @property
    def metrics(self) -> StateStoreMetrics:
        if self._lifecycle.state is State.UPDATING:
            return _metrics(self._ask(Do.METRICS)[0])
        if self._final_metrics is None:
            raise Unavailable(f"{self} was lost with its state host, and its metrics with it")
        return self._final_metrics

    def get(self, key: BytesLike) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[BytesLike]) -> list[bytes | None]:
        self._lifecycle.check("get")
        return self.get_array(_binary(encoded_rows(keys, "Key"))).to_pylist()  # type: ignore[no-any-return]

    def get_array(self, keys: pa.Array) -> pa.Array:
        self._lifecycle.check("get")
        asked = _rows(keys)
        # One message at a time: two ends that write without reading could wait for each other.
        parts = [part for rows in slices(asked) for part in self._get(rows)]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _get(self, asked: pa.RecordBatch) -> Iterator[pa.Array]:
        self._send(Request(Do.GET), asked)
        while True:
            answer, rows = self._receive(Do.GET)
            if rows is None:
                raise Unavailable(f"the state host answered a read of {self} without rows")
            yield rows.column(1)
            if not answer.more:
                return

    def iterator(self) -> Iterator[Pair]:
        self._lifecycle.check("iterator")
        return self._scan(Scan(self._session, ScanKind.ALL))

    def get_range(self, start: BytesLike | None, end: BytesLike | None) -> Iterator[Pair]:
        self._lifecycle.check("get_range")
        low, high = (None if bound is None else encoded_row(bound, "Bound") for bound in (start, end))
        return self._scan(Scan(self._session, ScanKind.RANGE, low, high))

    def prefix_scan(self, prefix: BytesLike, columns: int) -> Iterator[Pair]:
        self._lifecycle.check("prefix_scan")
        return self._scan(Scan(self._session, ScanKind.PREFIX, encoded_row(prefix, "Prefix"), columns=columns))

    def _scan(self, scan: Scan) -> Iterator[Pair]:
        # A host answers in order: when this has an answer, it has seen every write before it.
        self.get_array(_binary([]))
        return self._connection.scan(scan)

    def abort(self) -> None:
        was_open = self._lifecycle.state is State.UPDATING
        self._lifecycle.move("abort")
        if not was_open:
            return
        if not self._exchange.is_broken:
            try:
                self._final_metrics = _metrics(self._ask(Do.ABORT)[0])
            except HoldfastError:
                self._exchange.is_broken = True  # it is gone, and so is what it held for this store
        self._exchange.close()

    def _ask(self, do: Do) -> tuple[Answer, pa.RecordBatch | None]:
        self._send(Request(do))
        return self._receive(do)

    def _send(self, request: Request, rows: pa.RecordBatch | None = None) -> None:
        self._exchange.send(request, rows)

    def _receive(self, do: Do) -> tuple[Answer, pa.RecordBatch | None]:
        return self._exchange.receive(f"{do.value} of {self}")

    def __repr__(self) -> str:
        store = self._store_id
        where = store.store_checkpoint_location()
        return f"{type(self).__name__}[id=(op={store.operator_id},part={store.partition_id}),dir={where}]"


class RemoteStateStore(RemoteReadStore, StateStore):
    """One version, to make the next one from.

    Writes travel in bulk and are not answered; one that fails makes the next question fail. Single
    writes wait here until there are many, or until somebody could notice.
    """

    def __init__(self, connection: HostConnection, opening: OpenSession, guard: CommitGuard | None) -> None:
        super().__init__(connection, opening)
        self._guard = guard
        self._pending: dict[bytes, bytes | None] = {}
        self.counts: Counter[str] = Counter()
        """What this task did; goes to the driver with the commit."""

    def get(self, key: BytesLike) -> bytes | None:
        self._lifecycle.check("get")
        row = encoded_row(key, "Key")
        return self._pending[row] if row in self._pending else super().get(row)

    def put(self, key: BytesLike, value: BytesLike) -> None:
        self._lifecycle.check("put")
        self.counts[UPDATED] += 1
        self._later(encoded_row(key, "Key"), encoded_row(value, "Value"))

    def put_many(self, keys: Sequence[BytesLike], values: Sequence[BytesLike]) -> None:
        self._lifecycle.check("put")
        if len(keys) != len(values):
            raise InvalidRequest(f"put_many got {len(keys)} keys and {len(values)} values")
        self.counts[UPDATED] += len(keys)
        self._write(Do.PUT, encoded_rows(keys, "Key"), encoded_rows(values, "Value"))

    def put_array(self, keys: pa.Array, values: pa.Array) -> None:
        self._lifecycle.check("put")
        if len(keys) != len(values) or keys.null_count or values.null_count:
            raise InvalidRequest("put_array needs as many values as keys, and no nulls")
        self.counts[UPDATED] += len(keys)
        self._send(Request(Do.PUT), _rows(keys, values))

    def remove(self, key: BytesLike) -> None:
        self._lifecycle.check("remove")
        self.counts[REMOVED] += 1
        self._later(encoded_row(key, "Key"), None)

    def remove_many(self, keys: Sequence[BytesLike]) -> None:
        self._lifecycle.check("remove")
        self.counts[REMOVED] += len(keys)
        self._write(Do.REMOVE, encoded_rows(keys, "Key"))

    def remove_array(self, keys: pa.Array) -> None:
        self._lifecycle.check("remove")
        self.counts[REMOVED] += len(keys)
        self._send(Request(Do.REMOVE), _rows(keys))

    def commit(self) -> int:
        self._lifecycle.check("commit")
        self._send(Request(Do.COMMIT, dict(self.counts)))
        try:
            answer, _ = self._receive(Do.COMMIT)
            while answer.ask:
                self._exchange.send(self._asked())
                answer, _ = self._receive(Do.COMMIT)
        except Fenced:
            self.abort()
            raise
        except HoldfastError:
            if self._exchange.is_broken:
                self.abort()
            raise
        self._identity = answer.identity
        self._final_metrics = _metrics(answer)
        self._lifecycle.move("commit")
        self._exchange.close()
        return self._version + 1

    def _asked(self) -> Request:
        try:
            if self._guard is None:
                raise Fenced(f"{self} has no guard to ask")
            self._guard.before_publish(self)
        except HoldfastError as error:
            return Request(Do.STOP, error=Failure.of(error))
        except Exception as error:  # noqa: BLE001 - a guard that breaks says nothing
            return Request(Do.STOP, error=Failure.of(Unavailable(f"{type(error).__name__}: {error}")))
        return Request(Do.GO)

    @property
    def has_committed(self) -> bool:
        return self._lifecycle.state is State.COMMITTED

    def _later(self, key: bytes, value: bytes | None) -> None:
        self._pending[key] = value
        if len(self._pending) >= _PENDING_WRITES:
            self._flush()

    def _send(self, request: Request, rows: pa.RecordBatch | None = None) -> None:
        self._flush()
        super()._send(request, rows)

    def _flush(self) -> None:
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        put = {key: value for key, value in pending.items() if value is not None}
        self._write(Do.PUT, list(put), list(put.values()))
        self._write(Do.REMOVE, [key for key, value in pending.items() if value is None])

    def _write(self, do: Do, keys: list[bytes], values: list[bytes] | None = None) -> None:
        if not keys:
            return
        start = size = 0
        for position, key in enumerate(keys):
            size += len(key) + (len(values[position]) if values is not None else 0)
            # An Arrow array of variable rows ends at 2 GB; far below that they are cut anyway.
            if size > BATCH_BYTES or position == len(keys) - 1:
                end = position + 1
                some = None if values is None else values[start:end]
                self._send(Request(do), _rows(_binary(keys[start:end]), None if some is None else _binary(some)))
                start, size = end, 0


def _rows(keys: pa.Array, values: pa.Array | None = None) -> pa.RecordBatch:
    """Rows as they travel; arrays may have offsets of either width, as `RowCodec` and Arrow's users make them."""
    columns = [keys, pa.nulls(len(keys), pa.binary()) if values is None else values]
    try:
        return pa.RecordBatch.from_arrays([_narrow(column) for column in columns], schema=ROWS)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"an array of rows exceeds 2 GiB; give fewer rows at a time: {error}") from error


def _narrow(rows: pa.Array) -> pa.Array:
    if not (pa.types.is_binary(rows.type) or pa.types.is_large_binary(rows.type)):
        raise InvalidRequest(f"encoded rows are a binary array, not one of {rows.type}")
    return rows.cast(pa.binary())


def _binary(rows: list[bytes]) -> pa.Array:
    return pa.array(rows, pa.binary())


def _metrics(answer: Answer) -> StateStoreMetrics:
    if answer.metrics is None:
        raise Unavailable("the state host answered without metrics")
    return answer.metrics.unpack()
