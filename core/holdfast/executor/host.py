"""``python -m holdfast.executor.host``: becomes a process of its own, then serves.

The configuration comes over standard input. The process that was started waits until the host listens and ends then,
so that whoever started it has nothing left to wait for, and the host belongs to nobody. Nothing heavy is imported
before the fork.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def main() -> int:
    """Start a host; the exit code says whether it came up."""
    config = sys.stdin.buffer.read()
    heard, say = os.pipe()
    if os.fork():
        os.close(say)
        return 0 if os.read(heard, 1) else 1
    os.close(heard)
    from holdfast.executor.life import run

    def ready() -> None:
        with suppress(BrokenPipeError):  # whoever waited has given up; the next one finds a host
            os.write(say, b"!")
        os.close(say)

    return run(config, ready)


if __name__ == "__main__":
    sys.exit(main())
