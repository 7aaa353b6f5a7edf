"""A clock that stands still while its own process does."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class AwakeClock:
    """Does not count the time in which nobody looked at it.

    A driver that was stopped or starved for a while could not hear its hosts. Their leases must not run out for that:
    nobody knows that they were silent. So somebody has to look more often than every ``longest_gap`` seconds; what
    goes beyond is taken for a pause of the process.
    """

    def __init__(self, clock: Callable[[], float], longest_gap: float) -> None:
        self._clock = clock
        self._longest_gap = longest_gap
        self._lock = Lock()
        self._seen = clock()
        self._paused = 0.0

    def __call__(self) -> float:
        """Seconds, as of ``clock``, without the pauses."""
        with self._lock:
            now = self._clock()
            self._paused += max(0.0, now - self._seen - self._longest_gap)
            self._seen = now
            return now - self._paused
