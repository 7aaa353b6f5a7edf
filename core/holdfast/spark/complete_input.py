"""Prove that a task has seen all of its input before it commits.

When the JVM's half of a task fails or is cancelled, it closes the socket to the Python worker, and to Arrow's reader a
socket that closes between two batches is an ordinary end. The difference is on the wire only: after the last batch of
a complete input, and never otherwise, the JVM writes the marker ``END_OF_STREAM``. The worker reads it when the
function has returned, which is too late to decide about a commit; so this looks at it first and leaves it there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyspark

from holdfast.errors import EnvironmentNotReady, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

T = TypeVar("T")

END_OF_STREAM: Final = (-4).to_bytes(4, "big", signed=True)
"""PySpark's marker, as the JVM writes it."""


def complete_input(batches: Iterator[T]) -> Iterator[T]:
    """Pass on the batches that Spark gives to a function; raise ``Unavailable`` where an incomplete input just ends.

    Only for the function of ``mapInArrow``, in the thread in which the worker calls it.
    """
    stream = _worker_input()
    yield from batches
    if not ends_here(stream):
        raise Unavailable(
            "Spark stopped sending the input of this task before its end: an operator before this one failed, or the "
            "task was cancelled. Nothing was committed; Spark's own error says why, and a retry starts afresh"
        )


def ends_here(stream: Any) -> bool:
    """Whether the marker is next on a worker's input, all batches of which have been read; waits until it is known."""
    try:
        pending = stream.peek(len(END_OF_STREAM))[: len(END_OF_STREAM)]
    except OSError:
        return False
    # The stream's buffer may end within the marker, and peeking does not refill it. One byte is proof enough: after the
    # batches the JVM sends nothing else, and this only when its iterator has come to its end.
    return bool(pending) and END_OF_STREAM.startswith(pending)


def _worker_input() -> Any:
    """Return what the worker that called us reads from.

    ``pyspark.worker.main(infile, outfile)`` is the entry that PySpark's daemon calls, by position, in every version;
    what happens between it and us is not the same in any two.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- the worker hands its input to nobody
    while frame is not None:
        # Not by __name__: without the daemon the worker is the main module.
        module = getattr(frame.f_globals.get("__spec__"), "name", None)
        if module == "pyspark.worker" and frame.f_code.co_name == "main":
            stream = frame.f_locals.get("infile")
            if hasattr(stream, "peek"):
                return stream
        frame = frame.f_back
    raise EnvironmentNotReady(
        f"the input stream of this Python worker was not found (PySpark {pyspark.__version__}), so it cannot be proved "
        "complete; call from the function of mapInArrow, in its own thread, on PySpark 4.0 to 4.3"
    )
