"""From the bytes of a message to its handler, and from the handler's answer to bytes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.rpc.failures import Failure
from holdfast.rpc.records import decode, json_bytes, to_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from holdfast.rpc.messages import Message

log = logging.getLogger(__name__)


class Dispatcher:
    """Answers every sequence of bytes with an envelope: ``{"ok": reply}`` or ``{"error": failure}``."""

    def __init__(
        self, handlers: Mapping[type[Message[Any]], Callable[[Any], Any]], *, name: str, max_message_bytes: int
    ) -> None:
        self._handlers = {kind.__name__: (kind, handler) for kind, handler in handlers.items()}
        self._name = name
        self._max_message_bytes = max_message_bytes

    def answer(self, peer: str, message_name: str, body: pa.Buffer) -> bytes:
        """The envelope for a message from ``peer``; never raises."""
        try:
            kind, handler = self._known(message_name)
            if body.size > self._max_message_bytes:
                raise InvalidRequest(
                    f"{message_name} of {body.size} bytes is larger than {self._max_message_bytes}; send less at once"
                )
            message = decode(kind, body.to_pybytes())
        except InvalidRequest as error:
            log.warning("%s refused a message from %s: %s", self._name, peer, error)
            return _envelope(error)
        try:
            answer = json_bytes({"ok": to_plain(kind.reply, handler(message))})
            if len(answer) > self._max_message_bytes:
                raise InvalidRequest(f"the answer to {message_name} has {len(answer)} bytes; ask for less at once")
        except HoldfastError as error:
            return _envelope(error)
        except Exception as error:  # noqa: BLE001 - a defect in one handler must not end the server
            return _envelope(self.defect(message_name, error))
        return answer

    def defect(self, what: str, error: Exception) -> HoldfastError:
        """What to tell the other side about an error that nobody meant to raise; the log gets the rest."""
        log.error("%s failed to answer %s", self._name, what, exc_info=error)
        return HoldfastError(f"{what} failed at {self._name}: {type(error).__name__}: {error}; its log has the details")

    def _known(self, message_name: str) -> tuple[type[Message[Any]], Callable[[Any], Any]]:
        try:
            return self._handlers[message_name]
        except KeyError:
            raise InvalidRequest(f"{self._name} knows no message {message_name[:80]!r}") from None


def _envelope(error: HoldfastError) -> bytes:
    return json_bytes({"error": to_plain(Failure, Failure.of(error))})
