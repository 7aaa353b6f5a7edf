"""A provider that a test controls through files in a folder: it dies or waits at a fault point on request.

``at-<fault point>`` holds what to do there once: ``kill``, ``wait`` (until ``go`` exists), or ``memory`` (have none).
Who takes it renames it to ``reached-<fault point>``. ``fail-maintenance-<partition>`` makes maintenance raise.
``events`` has a line for everything that happens to a provider.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast.contract import faults
from holdfast.settings import Settings, setting
from holdfast_files import HDFSBackedStateStoreProvider

CONTROL_KEY = "spark.holdfast.controlled.folder"
CLASS_NAME = "controlled.ControlledProvider"


@dataclass(frozen=True, kw_only=True)
class ControlSettings(Settings):
    prefix: ClassVar[str] = "spark.holdfast.controlled."
    folder: str = setting("", "The folder with the files.")


class ControlledProvider(HDFSBackedStateStoreProvider):
    settings = ControlSettings

    def open(self):
        super().open()
        self._folder = Path(self.conf.backend_confs[CONTROL_KEY])
        # For the whole process: it is the state host that a test wants to have somewhere.
        faults._watcher = lambda name: obey(self._folder, name)
        self._event("loaded")

    def do_maintenance(self):
        self._event("maintained")
        if (self._folder / f"fail-maintenance-{self.store_id.partition_id}").exists():
            raise RuntimeError("maintenance fails on request")
        super().do_maintenance()

    def close(self):
        self._event("closed")
        super().close()

    def _event(self, what):
        with open(self._folder / "events", "a") as file:
            file.write(f"{what} {self.store_id.partition_id} {os.getpid()}\n")


def obey(folder, name):
    reached = folder / f"reached-{name}"
    try:
        (folder / f"at-{name}").rename(reached)
    except FileNotFoundError:
        return
    what = reached.read_text()
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "memory":
        raise MemoryError
    while what == "wait" and not (folder / "go").exists():
        time.sleep(0.01)


class Control:
    """The test's side."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.conf = {"spark.holdfast.providerClass": CLASS_NAME, CONTROL_KEY: str(folder)}

    def at(self, fault_point, what):
        (self.folder / f"at-{fault_point}").write_text(what)

    def has_reached(self, fault_point):
        return (self.folder / f"reached-{fault_point}").exists()

    def go_on(self):
        (self.folder / "go").touch()

    def fail_maintenance(self, partition):
        (self.folder / f"fail-maintenance-{partition}").touch()

    def events(self, partition=0):
        """What happened to the providers of a partition, in order."""
        try:
            lines = (self.folder / "events").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line.split()[0] for line in lines if line.split()[1] == str(partition)]
