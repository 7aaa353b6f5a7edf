"""Named places in the code where a test can make the process die or an error occur."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_watcher: Callable[[str], None] | None = None


def fault_point(name: str) -> None:
    """Mark a place where a crash or an error must do no harm. Costs nothing in production."""
    if _watcher is not None:
        _watcher(name)


@contextmanager
def watch_fault_points(watcher: Callable[[str], None]) -> Iterator[None]:
    """Call ``watcher`` with the name of every fault point that this process passes."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before
