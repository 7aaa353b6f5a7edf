"""Which executor a Python worker belongs to."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from holdfast.errors import EnvironmentNotReady

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DRIVER: Final = "driver"
"""The executor id in local mode, where the driver runs the tasks."""


@dataclass(frozen=True, slots=True)
class ExecutorIdentity:
    """An executor, as seen by the processes that it started."""

    key: str
    """Never the same for two executors, not even on one machine or after a restart."""
    executor_id: str
    host: str
    """As Spark spells it in the locations of tasks; in local mode, where there are none, this machine's name."""
    pid: int
    """Of the executor's JVM."""

    @classmethod
    def of_this_worker(cls, environment: Mapping[str, str] = os.environ) -> ExecutorIdentity:
        """Find the executor above this process; ``EnvironmentNotReady`` outside of a Python worker."""
        key = _block_manager(environment.get("SPARK_LOCAL_DIRS", ""))
        pid, arguments = _java_above(os.getpid())
        executor_id = _option(arguments, "--executor-id")
        host = _option(arguments, "--hostname")
        return cls(key, executor_id or DRIVER, host or socket.gethostname(), pid)


def _block_manager(local_dirs: str) -> str:
    """Return the name of the first folder of the executor's blocks: a random one, made when the executor starts."""
    names = (PurePath(folder).name for folder in local_dirs.split(","))
    for name in names:
        if name.startswith("blockmgr-"):
            return name
    raise EnvironmentNotReady(
        f"no blockmgr-… folder in SPARK_LOCAL_DIRS ({local_dirs!r}), so this executor cannot be told from others; "
        "is this a Python worker that Spark started?"
    )


def _java_above(pid: int) -> tuple[int, Sequence[str]]:
    """Return the nearest JVM among the processes above this one, and its command line."""
    above = _parent(pid)
    while above > 0:
        arguments = _read_process(above, "cmdline").split("\0")
        if PurePath(arguments[0]).name == "java":
            return above, arguments
        above = _parent(above)
    raise EnvironmentNotReady(f"process {pid} has no JVM above it; is this a Python worker that Spark started?")


def _parent(pid: int) -> int:
    stat = _read_process(pid, "stat")
    # The name of the program stands in brackets before the other fields, and may hold brackets and spaces.
    return int(stat.rpartition(")")[2].split()[1])


def _read_process(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace")
    except OSError as failure:
        raise EnvironmentNotReady(
            f"the processes above this one cannot be read ({failure}); Holdfast needs /proc on the executors"
        ) from failure


def _option(arguments: Sequence[str], name: str) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments[:-1] else None
