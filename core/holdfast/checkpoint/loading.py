"""Saying how far a long load is, also from within one large file."""

from __future__ import annotations

import logging
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger(__name__)

FIRST_REPORT = 1.0
"""Seconds after which a load says that it is still going on."""

NEXT_REPORTS = 10.0
"""Seconds between what it says later."""


class LoadingReport:
    """Logs what a load is doing, if it takes long; use it in a ``with`` block.

    A thread does it: reading and decoding one snapshot are single calls that can take a minute.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self.doing = "looking for files"
        """What the load is at, for the next report."""
        self._done = Event()
        self._thread = Thread(target=self._report, name="holdfast-loading", daemon=True)

    def _report(self) -> None:
        started = monotonic()
        pause = FIRST_REPORT
        while not self._done.wait(pause):
            log.info("Loading %s: %s, %.0f s", self._where, self.doing, monotonic() - started)
            pause = NEXT_REPORTS

    def __enter__(self) -> LoadingReport:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
