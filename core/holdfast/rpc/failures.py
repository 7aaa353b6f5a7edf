"""How errors cross the wire: ours as what they are, the transport's as ours."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import flight

from holdfast import errors
from holdfast.errors import HoldfastError, InvalidRequest, Unavailable
from holdfast.rpc.records import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOM_IN_HEADERS: Final = 6000
"""gRPC may drop a call whose headers have more than 8 KiB."""

TOKEN_MISMATCH = "the token does not match"  # noqa: S105 - a message, not a token
TOKEN_MISSING = "the call has no token"  # noqa: S105 - a message, not a token


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of ``holdfast.errors``, in a form that can be sent."""

    type: str
    message: str

    @staticmethod
    def of(error: HoldfastError) -> Failure:
        """The nearest type that the other side knows as well, and the message."""
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        text = str(error).encode("utf-8", "replace").decode("utf-8")  # file names may bring what UTF-8 cannot hold
        return Failure(kind.__name__, text)

    def error(self) -> HoldfastError:
        """The error again; one that only the other side knows is a plain ``HoldfastError``."""
        kind = getattr(errors, self.type, None)
        if isinstance(kind, type) and issubclass(kind, HoldfastError):
            return kind(self.message)
        return HoldfastError(f"{self.type}: {self.message}")


def flight_error(error: HoldfastError) -> flight.FlightServerError:
    """What to raise in a Flight stream so that ``translated`` raises ``error`` at the other end.

    It travels in headers, which have little room: a longer message is cut short.
    """
    failure = Failure.of(error)
    sent = encode(Failure, failure)
    if len(sent) > _ROOM_IN_HEADERS:
        # A character takes up to twelve bytes in JSON.
        sent = encode(Failure, Failure(failure.type, failure.message[: _ROOM_IN_HEADERS // 12] + " … (cut short)"))
    # Flight sends its own message three times over, so it gets the name only.
    return flight.FlightServerError(failure.type, sent)


@contextlib.contextmanager
def translated(what: str, peer: str, timeout: float | None = None) -> Iterator[None]:
    """Turn the errors of Flight calls to ``peer`` into ours; ``what`` names the call, and never a token."""
    try:
        yield
    except flight.FlightUnauthenticatedError as error:
        raise InvalidRequest(
            f"{peer} refused {what}: {_first_sentence(error)}; it belongs to another application, or was restarted"
        ) from error
    except flight.FlightTimedOutError as error:
        within = f" within {timeout:g} s" if timeout is not None else " in time"
        raise Unavailable(f"{what} at {peer}: no answer{within}") from error
    except flight.FlightError as error:
        raise _sent_error(error) or Unavailable(f"{what} at {peer}: {_first_sentence(error)}") from error
    except pa.ArrowNotImplementedError as error:
        raise InvalidRequest(f"{what}: {peer} does not serve this kind of call") from error
    except pa.ArrowException as error:
        # Subclasses are what Arrow says about data on this side; the bare class is an answer that is not Flight's.
        if type(error) is not pa.ArrowException:
            raise
        raise Unavailable(f"{what} at {peer}: {_first_sentence(error)}") from error


def _sent_error(error: flight.FlightError) -> HoldfastError | None:
    if not error.extra_info:
        return None
    try:
        failure: Failure = decode(Failure, error.extra_info)
    except InvalidRequest:
        return None
    return failure.error()


def _first_sentence(error: Exception) -> str:
    """The message without what Flight and gRPC append to it."""
    text = str(error).partition(". Detail:")[0].partition(". gRPC client debug context")[0]
    return text.removeprefix("Flight returned unavailable error, with message: ")
