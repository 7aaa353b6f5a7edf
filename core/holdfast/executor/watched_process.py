"""Whether the process that a host serves is still there."""

from __future__ import annotations

from pathlib import Path


class WatchedProcess:
    """A process, told from a later one of the same number by the time it was started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._started = _started(pid)

    def is_gone(self) -> bool:
        """Whether it has ended."""
        return self._started is None or _started(self.pid) != self._started


def _started(pid: int) -> str | None:
    """When a process was started, in the kernel's count; ``None`` when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name before it, in parentheses, may itself contain anything.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else fields[18]
