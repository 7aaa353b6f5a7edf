"""A client's end of a session with a state host."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Condition, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from holdfast.errors import HoldfastError, Unavailable
from holdfast.executor.protocol import ROWS, Answer, OpenSession, Request, Scan, slices
from holdfast.rpc.failures import translated
from holdfast.rpc.records import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.rpc.client import RpcClient
    from holdfast.rpc.messages import Message, ReplyT


_DEADLINE_POLL_SECONDS = 0.5
"""A moment is enough: no patience is shorter than a second."""


class HostConnection:
    """A process's connection to one state host."""

    def __init__(self, client: RpcClient, log: Path, patience: float) -> None:
        """``patience`` is how many seconds one answer may take."""
        self._client = client
        self.log = log
        self._patience = patience

    def open(self, opening: OpenSession) -> ClientExchange:
        """Begin a session."""
        where = opening.provider_id.store_id.store_checkpoint_location()
        with self.errors(f"opening version {opening.version} of {where}"):
            writer, reader = self._client.do_exchange(flight.FlightDescriptor.for_command(encode(OpenSession, opening)))
            writer.begin(ROWS)
        return ClientExchange(self, writer, reader)

    def ask(self, message: Message[ReplyT]) -> ReplyT:
        """Send a message that is not about an open store."""
        with self.errors(type(message).__name__):
            return self._client.ask(message)

    def scan(self, scan: Scan) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of a scan; it has begun on the host when this returns."""
        with self.errors("a scan"):
            reader = self._client.do_get(flight.Ticket(encode(Scan, scan)))
        return self._pairs(reader)

    def _pairs(self, reader: Any) -> Iterator[tuple[bytes, bytes]]:
        finished = False
        try:
            while True:
                with self.errors("a scan"), self.waiting(reader, "a scan"):
                    try:
                        rows = reader.read_chunk().data
                    except StopIteration:
                        finished = True
                        return
                yield from zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)
        finally:
            if not finished:
                reader.cancel()

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Say in every error where the host's log is."""
        try:
            with translated(what, "the state host"):
                try:
                    yield
                except OSError as error:  # what Arrow says when the other end of a stream is gone
                    raise Unavailable(f"{what}: the state host is gone") from error
        except HoldfastError as error:
            raise type(error)(f"{error} (log of the state host: {self.log})") from error

    @contextmanager
    def waiting(self, reader: Any, what: str) -> Iterator[None]:
        """Cancel the stream of ``reader`` if ``what`` is done within takes too long."""
        try:
            with _deadlines.watching(reader, self._patience):
                yield
        except flight.FlightCancelledError as error:
            raise Unavailable(
                f"{what}: no answer of the state host within {self._patience:g} s (spark.holdfast.host.requestTimeout)"
            ) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close(0)


class ClientExchange:
    """Requests out, answers in."""

    def __init__(self, connection: HostConnection, writer: Any, reader: Any) -> None:
        self._connection = connection
        self._writer = writer
        self._reader = reader
        self.is_broken = False

    def send(self, request: Request, rows: pa.RecordBatch | None = None) -> None:
        """Say something; rows travel in pieces, each with the same request."""
        # Without a deadline: gRPC does not give up a write that has begun. Only a host that is frozen makes one wait.
        with self._lost_if_it_fails("sending to the state host"):
            if rows is None:
                self._writer.write_metadata(encode(Request, request))
            else:
                for part in slices(rows):
                    self._writer.write_with_metadata(part, encode(Request, request))

    def receive(self, what: str) -> tuple[Answer, pa.RecordBatch | None]:
        """The next answer; raises the error that it may be."""
        with self._lost_if_it_fails(what), self._connection.waiting(self._reader, what):
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                raise Unavailable(f"{what}: the state host is gone") from None
        answer: Answer = decode(Answer, chunk.app_metadata.to_pybytes())
        if answer.error is not None:
            with self._connection.errors(what):
                raise answer.error.error()
        return answer, chunk.data

    def close(self) -> None:
        """End the session; what was not committed is gone."""
        try:
            with self._connection.waiting(self._reader, "closing a store"):
                self._writer.done_writing()
                self._writer.close()
        except (Unavailable, pa.ArrowException, OSError):
            # The host was gone first, or said why in an answer that was read.
            self.is_broken = True

    @contextmanager
    def _lost_if_it_fails(self, what: str) -> Iterator[None]:
        try:
            with self._connection.errors(what):
                yield
        except HoldfastError:
            self.is_broken = True
            raise


class _Deadlines:
    """Cancels streams in which something takes too long: Flight's own timeouts are for whole sessions."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._watched: dict[int, tuple[float, Any]] = {}
        self._thread: Thread | None = None

    @contextmanager
    def watching(self, reader: Any, patience: float) -> Iterator[None]:
        with self._changed:
            self._watched[id(reader)] = (monotonic() + patience, reader)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = Thread(target=self._watch, name="holdfast-deadlines", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._watched.pop(id(reader), None)

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._watched:
                    self._changed.wait()
                now = monotonic()
                late = [reader for deadline, reader in self._watched.values() if deadline < now]
            for reader in late:
                reader.cancel()
            sleep(_DEADLINE_POLL_SECONDS)


_deadlines = _Deadlines()
