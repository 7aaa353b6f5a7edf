"""A server of typed messages on Arrow Flight."""

from __future__ import annotations

import hmac
import logging
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from holdfast.errors import HoldfastError, InvalidRequest, InvalidSetting, Unavailable, VersionSkew
from holdfast.plugins.versions import check_same_software
from holdfast.rpc.address import AUTHORIZATION, bearer
from holdfast.rpc.dispatch import Dispatcher
from holdfast.rpc.failures import TOKEN_MISMATCH, TOKEN_MISSING, flight_error
from holdfast.rpc.forking import use_grpc
from holdfast.rpc.messages import MAX_MESSAGE_BYTES, PROTOCOL, Hello
from holdfast.rpc.tls import Tls, read_pem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from holdfast.rpc.messages import Message

log = logging.getLogger(__name__)


class RpcServer:
    """Answers messages by calling their handlers, each call on a thread of its own, several at once.

    Every call, of whatever kind, needs the token. What is not a message is refused and leaves the server as it was.
    Subclasses that also stream override ``do_get`` and ``do_exchange``; nothing is called before ``start``.
    """

    def __init__(
        self,
        location: str,
        token: str,
        handlers: Mapping[type[Message[Any]], Callable[[Any], Any]],
        *,
        software: Mapping[str, str],
        name: str,
        tls: Tls | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        """``location`` as in ``Address``, port 0 for any; ``name`` is how messages to people call this server."""
        if not token:
            raise InvalidSetting(f"{name} needs a token; got an empty one")
        if (tls is not None) != location.startswith("grpc+tls:"):
            raise InvalidSetting(
                f"{name}: a certificate goes with a grpc+tls:// location and only there; got {location}"
            )
        self.name = name
        self._location = location
        self._token = token
        self._dispatcher = Dispatcher({Hello: self.greet, **handlers}, name=name, max_message_bytes=max_message_bytes)
        self._software = dict(software)
        self._tls = tls
        self._flight: _FlightServer | None = None
        self._stopping = threading.Lock()
        self._stopper: threading.Thread | None = None

    def start(self) -> None:
        """Listen. Calls are answered from now on, on threads of the transport."""
        use_grpc()
        certificates = None if self._tls is None else [(read_pem(self._tls.certificate), read_pem(self._tls.key))]
        try:
            self._flight = _FlightServer(self, self._dispatcher, self._location, self._token, certificates)
        except (pa.ArrowException, OSError) as error:
            raise Unavailable(
                f"{self.name} cannot listen on {self._location}: {error}; another process may have it"
            ) from error

    def stop(self, *, wait: bool = True) -> None:
        """Refuse new calls, and end when those under way have ended; a handler may call this without waiting."""
        with self._stopping:
            if self._flight is None:
                return
            if self._stopper is None:
                # Never on the calling thread: a handler that shut down its own server would wait for itself.
                self._stopper = threading.Thread(target=self._flight.shutdown, name=f"stop {self.name}")
                self._stopper.start()
        if wait:
            self._stopper.join()

    def wait(self) -> None:
        """Block until the server has ended."""
        if self._flight is not None:
            self._flight.wait()

    @property
    def port(self) -> int:
        """The port it listens on; -1 on a Unix socket."""
        if self._flight is None:
            raise InvalidRequest(f"{self.name} has no port before it is started")
        port: int = self._flight.port
        return port

    def greet(self, hello: Hello) -> None:
        """Refuse a caller whose messages or state files would not be what this side takes them for."""
        if hello.protocol != PROTOCOL:
            raise VersionSkew(
                f"{self.name} speaks protocol {PROTOCOL} ({_shown(self._software)})"
                f" and {hello.sender} protocol {hello.protocol} ({_shown(hello.software)});"
                " install the same versions on every machine of the cluster"
            )
        check_same_software(self._software, hello.software, hello.sender, here=self.name)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Stream out what the ticket names; a message server has nothing to stream.

        What fails only while streaming must be raised as ``failures.flight_error``.
        """
        raise InvalidRequest(f"{self.name} serves no streams")

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Stream in both directions; a message server has nothing to stream."""
        raise InvalidRequest(f"{self.name} serves no streams")

    def __enter__(self) -> RpcServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class _FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Flight's side of an ``RpcServer``: apart, because this one listens as soon as it exists."""

    def __init__(
        self,
        owner: RpcServer,
        dispatcher: Dispatcher,
        location: str,
        token: str,
        certificates: list[tuple[bytes, bytes]] | None,
    ) -> None:
        self._owner = owner
        self._dispatcher = dispatcher
        super().__init__(location, tls_certificates=certificates, middleware={"token": _TokenCheck(owner.name, token)})

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[flight.Result]:
        return iter([flight.Result(self._dispatcher.answer(context.peer(), action.type, action.body))])

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            return self._owner.do_get(context, ticket)
        except Exception as error:
            raise self._for_stream("a read", error) from error

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        try:
            self._owner.do_exchange(context, descriptor, reader, writer)
        except Exception as error:
            raise self._for_stream("an exchange", error) from error

    def _for_stream(self, what: str, error: Exception) -> flight.FlightError:
        if isinstance(error, flight.FlightError):
            return error
        return flight_error(error if isinstance(error, HoldfastError) else self._dispatcher.defect(what, error))


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets no call through, of whatever kind, that does not carry the token."""

    def __init__(self, name: str, token: str) -> None:
        self._name = name
        self._wanted = bearer(token).encode()

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str | bytes]]) -> None:
        shown = headers.get(AUTHORIZATION, [])
        if len(shown) == 1 and hmac.compare_digest(_as_bytes(shown[0]), self._wanted):
            return
        problem = TOKEN_MISMATCH if shown else TOKEN_MISSING
        log.warning("%s refused a call (%s): %s", self._name, info.method, problem)
        raise flight.FlightUnauthenticatedError(problem)


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def _shown(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(software.items()))
