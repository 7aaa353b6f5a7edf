"""Messages that nobody waits for: a queue and the thread that empties it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.rpc.messages import Message

log = logging.getLogger(__name__)


class OneWayQueue:
    """Delivers messages in the order they were put, each at most once, without ever blocking who puts them."""

    def __init__(self, deliver: Callable[[Message[Any]], object], peer: str, capacity: int) -> None:
        self._deliver = deliver
        self._peer = peer
        self._capacity = capacity
        self._waiting: deque[Message[Any]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, message: Message[Any]) -> None:
        """Queue a message; one that finds the queue full or closed is dropped and logged."""
        with self._changed:
            if self._closed or len(self._waiting) >= self._capacity:
                reason = "the connection is closed" if self._closed else f"{self._capacity} others are waiting"
                log.warning("%s to %s was dropped: %s", type(message).__name__, self._peer, reason)
                return
            self._waiting.append(message)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"one-way to {self._peer}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Take no more, and wait so long for what is queued to go out; the rest is dropped and logged."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is None:
            return
        thread.join(timeout)
        with self._changed:
            if self._waiting:
                log.warning("%d messages to %s were dropped: the connection is closed", len(self._waiting), self._peer)
                self._waiting.clear()

    def _run(self) -> None:
        while (message := self._next()) is not None:
            try:
                self._deliver(message)
            except Exception as error:  # noqa: BLE001 - one message must not take the others with it
                log.warning("%s was not delivered: %s", type(message).__name__, error)

    def _next(self) -> Message[Any] | None:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting else None
