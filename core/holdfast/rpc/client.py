"""A client of typed messages on Arrow Flight."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from pyarrow import flight

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.rpc.address import AUTHORIZATION, Address, bearer
from holdfast.rpc.failures import Failure, translated
from holdfast.rpc.forking import use_grpc
from holdfast.rpc.messages import MAX_MESSAGE_BYTES
from holdfast.rpc.oneway import OneWayQueue
from holdfast.rpc.records import encode, from_plain, parse_json
from holdfast.rpc.tls import read_pem

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.rpc.messages import Hello, Message, ReplyT

FIRST_PAUSE: Final = 0.1
"""Seconds before the first retry; each further one waits twice as long."""

_CHANNEL_OPTIONS: Final = [
    # Both ends are inside one cluster: a proxy for the outside world, set in the environment, is not on the way.
    ("grpc.enable_http_proxy", 0),
    # gRPC's own pauses grow to two minutes, in which a server that came back would go unnoticed.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Channels to one address would share a connection, and with it each other's pauses.
    ("grpc.use_local_subchannel_pool", 1),
]


class RpcClient:
    """A connection to one ``RpcServer``; any number of threads may use it.

    Says hello before the first call, and again after one found no server: another may have come up since.
    """

    def __init__(
        self,
        address: Address,
        *,
        hello: Hello,
        timeout: float = 30.0,
        retries: int = 3,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        max_queued: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``timeout`` bounds a whole ``ask`` in seconds, the hello and up to ``retries`` retries included."""
        use_grpc()
        self.address = address
        self._hello = hello
        self._timeout = timeout
        self._retries = retries
        self._max_message_bytes = max_message_bytes
        self._clock = clock
        self._headers = [(AUTHORIZATION.encode(), bearer(address.token).encode())]
        roots = None if address.tls_root is None else read_pem(address.tls_root)
        self._flight = flight.FlightClient(address.location, tls_root_certs=roots, generic_options=_CHANNEL_OPTIONS)
        self._greeting = threading.Lock()
        self._greeted = False
        self._closed = threading.Event()
        self._one_way = OneWayQueue(self.ask, str(address), max_queued)

    def ask(self, message: Message[ReplyT], timeout: float | None = None) -> ReplyT:
        """Send a message and return its answer, or raise the error that the server answered with.

        ``Unavailable`` leaves open whether the message arrived; idempotent ones were then tried again already.
        """
        kind = type(message)
        body = encode(kind, message)
        if len(body) > self._max_message_bytes:
            raise InvalidRequest(
                f"{kind.__name__} of {len(body)} bytes is larger than {self._max_message_bytes}; send less at once"
            )
        return from_plain(kind.reply, self._reply(kind, body, self._timeout if timeout is None else timeout))  # type: ignore[no-any-return]

    def send(self, message: Message[None]) -> None:
        """Send a message without waiting: in order with other such messages, failures are only logged."""
        use_grpc()
        self._one_way.put(message)

    def call_options(self, timeout: float | None = None) -> flight.FlightCallOptions:
        """Options that let a Flight call of any kind through; ``timeout`` bounds the call from start to end."""
        return flight.FlightCallOptions(timeout=timeout, headers=self._headers)

    def do_exchange(
        self, descriptor: flight.FlightDescriptor, timeout: float | None = None
    ) -> tuple[flight.FlightStreamWriter, flight.FlightStreamReader]:
        """Open a stream in both directions; use it within ``failures.translated``."""
        self._ready()
        with translated("opening an exchange", str(self.address), timeout):
            writer, reader = self._flight.do_exchange(descriptor, self.call_options(timeout))
            return writer, reader

    def do_get(self, ticket: flight.Ticket, timeout: float | None = None) -> flight.FlightStreamReader:
        """Open a stream from the server; use it within ``failures.translated``."""
        self._ready()
        with translated("opening a read", str(self.address), timeout):
            return self._flight.do_get(ticket, self.call_options(timeout))

    def close(self, timeout: float = 5.0) -> None:
        """End the connection, after giving queued one-way messages so many seconds to go out."""
        self._one_way.close(timeout)
        self._closed.set()
        self._flight.close()

    def _reply(self, kind: type[Message[Any]], body: bytes, timeout: float) -> Any:
        """The answer in JSON values, by as many attempts as the message and the time allow."""
        deadline = self._clock() + timeout
        retries, pause = self._retries if kind.idempotent else 0, FIRST_PAUSE
        while True:
            try:
                self._greet(deadline)
                envelope = self._call(kind.__name__, body, deadline)
                break
            except Unavailable:
                if retries == 0 or self._clock() + pause >= deadline or self._closed.wait(pause):
                    raise
                retries, pause = retries - 1, pause * 2
        return self._opened(kind.__name__, envelope)

    def _greet(self, deadline: float) -> None:
        if self._greeted:
            return
        with self._greeting:
            if not self._greeted:
                kind = type(self._hello)
                self._opened(kind.__name__, self._call(kind.__name__, encode(kind, self._hello), deadline))
                self._greeted = True

    def _ready(self) -> None:
        """Before a stream: say hello, as ``ask`` would."""
        self._greet(self._clock() + self._timeout)
        self._check_usable()

    def _call(self, message_name: str, body: bytes, deadline: float) -> bytes:
        self._check_usable()
        left = deadline - self._clock()
        if left <= 0:
            raise Unavailable(f"{message_name} at {self.address}: no time left to try")
        try:
            with translated(message_name, str(self.address), left):
                action = flight.Action(message_name, body)
                results = list(self._flight.do_action(action, self.call_options(left)))
        except Unavailable:
            self._greeted = False
            raise
        if len(results) != 1:
            raise Unavailable(f"{message_name} at {self.address}: {len(results)} answers instead of one")
        envelope: bytes = results[0].body.to_pybytes()
        return envelope

    def _opened(self, message_name: str, envelope: bytes) -> Any:
        plain = parse_json(envelope)
        match plain:
            case {"ok": reply}:
                return reply
            case {"error": failure}:
                raise from_plain(Failure, failure).error()
        raise Unavailable(f"{message_name} at {self.address}: the answer is none")

    def _check_usable(self) -> None:
        use_grpc()
        if self._closed.is_set():
            raise InvalidRequest(f"the connection to {self.address} is closed; make a new one")
