"""The settings of the state host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from holdfast.conf import HOLDFAST_PREFIX
from holdfast.errors import InvalidSetting
from holdfast.settings import ByteSize, Seconds, Settings, setting


@dataclass(frozen=True, kw_only=True)
class HostSettings(Settings):
    """How hosts are started, when they end, and where they log."""

    prefix: ClassVar[str] = HOLDFAST_PREFIX + "host."

    processes: int = setting(
        1,
        "State hosts on each executor, over which its partitions are spread (default in a query: one for each task that"
        " an executor runs at once, at most 4).",
        minimum=1,
    )
    folder: str | None = setting(
        None,
        "Folder for sockets, locks and logs, on a local disk; its path must be short (default: in the temp folder).",
    )
    start_timeout: Seconds = setting(Seconds(60.0), "How long a task waits for a host to come up.", minimum=1)
    request_timeout: Seconds = setting(
        Seconds(600.0),
        "How long a task waits for one answer of its host; loading a large state is one answer.",
        minimum=1,
    )
    heartbeat_interval: Seconds = setting(
        Seconds(5.0), "Time between two reports of a host to the driver.", minimum=0.05
    )
    driver_timeout: Seconds = setting(
        Seconds(60.0), "A host ends when the driver has not answered for this long.", minimum=0.1
    )
    idle_timeout: Seconds = setting(
        Seconds(600.0), "A host ends when it has had nothing loaded and nobody connected for this long.", minimum=0.1
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting("INFO", "Level of a host's log.")
    log_size: ByteSize = setting(ByteSize(10 * 1024**2), "A host's log is rotated at this size.", minimum=1024)
    log_files: int = setting(3, "Rotated logs that are kept.", minimum=1)

    def __post_init__(self) -> None:
        """Refuse what would make a host end by itself."""
        if self.driver_timeout < 3 * self.heartbeat_interval:
            raise InvalidSetting(
                f"{self.prefix}driverTimeout is {self.driver_timeout:g} s and {self.prefix}heartbeatInterval"
                f" {self.heartbeat_interval:g} s: a host would take one late answer for the driver's end; make the"
                " timeout at least three intervals"
            )
