"""One open store of one client, on the host's side."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import islice
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.contract.store import StateStore
from holdfast.errors import Fenced, HoldfastError, InvalidRequest, Unavailable
from holdfast.executor.protocol import ROWS, Answer, Do, Metrics, Request, Scan, ScanKind, slices
from holdfast.rpc.failures import Failure
from holdfast.rpc.records import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.contract.store import Pair, ReadStateStore
    from holdfast.executor.permission import Permission

log = logging.getLogger(__name__)

_PAIRS_AT_ONCE = 8192
"""Pairs of a scan that are looked at before their size is."""


class ClientGone(Exception):
    """Nobody reads answers any more."""


class Exchange:
    """The host's end of a Flight exchange: requests in, answers out."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader = reader
        self._writer = writer
        writer.begin(ROWS)

    def receive(self) -> tuple[Request, pa.RecordBatch | None] | None:
        """The next request, or ``None`` when the client is gone."""
        try:
            chunk = self._reader.read_chunk()
        except (StopIteration, pa.ArrowException, OSError):
            return None
        if chunk.app_metadata is None:
            raise InvalidRequest("rows came without a request")
        return decode(Request, chunk.app_metadata.to_pybytes()), chunk.data

    def send(self, answer: Answer, rows: pa.RecordBatch | None = None) -> None:
        """Answer the client; raises ``ClientGone``."""
        try:
            if rows is None:
                self._writer.write_metadata(encode(Answer, answer))
            else:
                self._writer.write_with_metadata(rows, encode(Answer, answer))
        except (pa.ArrowException, OSError) as error:
            raise ClientGone from error

    def ask_client(self) -> None:
        """Let the client's guard decide; for use during a commit."""
        self.send(Answer(ask=True))
        received = self.receive()
        if received is None:
            raise Fenced("the client was gone when it was asked for permission to publish")
        request, _ = received
        if request.do is not Do.GO:
            raise (request.error or Failure("Fenced", "the client does not allow it")).error()

    def drain(self) -> None:
        """Wait until the client has read its answer and gone: an exchange that ends takes unread answers with it."""
        with suppress(StopIteration, pa.ArrowException, OSError):
            while True:
                self._reader.read_chunk()

    def refuse(self, error: BaseException) -> None:
        """Answer with an error, and log it if it is not one that was meant."""
        if not isinstance(error, HoldfastError):
            log.error("A request failed", exc_info=error)
            what = "is out of memory" if isinstance(error, MemoryError) else f"failed: {type(error).__name__}: {error}"
            error = Unavailable(f"the state host {what}")
        self.send(Answer(error=Failure.of(error)))


class Session:
    """Serves the requests of one client about one open store."""

    def __init__(
        self,
        store: ReadStateStore,
        permission: Permission | None,
        exchange: Exchange,
        committing: Callable[[], Any],
    ) -> None:
        """``committing`` gives a block within which the host does not end."""
        self._store = store
        self._permission = permission
        self._exchange = exchange
        self._committing = committing
        self._failed_write: BaseException | None = None
        self._committed = False
        self._lock = RLock()

    def serve(self) -> None:
        """Go on until the client commits, aborts or is gone."""
        while True:
            received = self._exchange.receive()
            if received is None:
                log.info("The client of %s is gone; its changes are dropped", self._store)
                return
            request, rows = received
            if request.do in {Do.PUT, Do.REMOVE}:
                self._write(request, rows)
            elif request.do is Do.ABORT:
                self._store.abort()
                self._exchange.send(Answer(metrics=Metrics.of(self._store.metrics)))
                return
            else:
                self._answer(request, rows)
                if self._committed:
                    return

    def _write(self, request: Request, rows: pa.RecordBatch | None) -> None:
        # Nothing is answered: the client goes on at once and is told of a failure by its next question.
        try:
            store = self._writable()
            if rows is None:
                raise InvalidRequest(f"{request.do.value} came without rows")
            with self._lock:
                if request.do is Do.PUT:
                    store.put_array(rows.column(0), rows.column(1))
                else:
                    store.remove_array(rows.column(0))
        except Exception as error:  # noqa: BLE001 - told to the client with its next question
            self._failed_write = self._failed_write or error

    def _answer(self, request: Request, rows: pa.RecordBatch | None) -> None:
        try:
            if self._failed_write is not None:
                raise self._failed_write
            with self._lock:
                if request.do is Do.GET:
                    self._get(rows)
                elif request.do is Do.METRICS:
                    self._exchange.send(Answer(metrics=Metrics.of(self._store.metrics)))
                elif request.do is Do.COMMIT:
                    self._commit(request)
                else:
                    raise InvalidRequest(f"nobody asked for {request.do.value}")
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - told to the client
            self._exchange.refuse(error)

    def _get(self, rows: pa.RecordBatch | None) -> None:
        if rows is None:
            raise InvalidRequest("get came without keys")
        values = self._store.get_array(rows.column(0))
        found = pa.RecordBatch.from_arrays([pa.nulls(len(values), pa.binary()), values], schema=ROWS)
        *most, last = slices(found)
        for part in most:
            self._exchange.send(Answer(more=True), part)
        self._exchange.send(Answer(), last)

    def _commit(self, request: Request) -> None:
        store = self._writable()
        started = monotonic()
        with self._committing():
            if not store.has_committed:  # else this is a second try: the driver did not hear of the first
                store.commit()
            if self._permission is not None:
                took = int((monotonic() - started) * 1000)
                self._permission.committed(store, {**request.counts, "commitTimeMs": took})
            self._committed = True
            self._exchange.send(
                Answer(version=store.version + 1, identity=store.identity, metrics=Metrics.of(store.metrics))
            )
            self._exchange.drain()  # a host that ended now would take the answer with it

    def scan(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """The batches of a scan of the store as it is now."""
        with self._lock:
            if self._failed_write is not None:
                raise self._failed_write
            return _batches(self._pairs(scan))

    def _pairs(self, scan: Scan) -> Iterator[Pair]:
        if scan.kind is ScanKind.ALL:
            return self._store.iterator()
        if scan.kind is ScanKind.RANGE:
            return self._store.get_range(scan.start, scan.end)
        if scan.start is None or scan.columns is None:
            raise InvalidRequest("a prefix scan needs a prefix and its number of columns")
        return self._store.prefix_scan(scan.start, scan.columns)

    @property
    def has_committed(self) -> bool:
        """Whether the version was published and the driver knows it."""
        return self._committed

    def _writable(self) -> StateStore:
        if not isinstance(self._store, StateStore):
            raise InvalidRequest(f"{self._store} was opened for reading only")
        return self._store


def _batches(pairs: Iterator[Pair]) -> Iterator[pa.RecordBatch]:
    while chunk := list(islice(pairs, _PAIRS_AT_ONCE)):
        keys, values = zip(*chunk, strict=True)
        yield from slices(
            pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=ROWS)
        )
