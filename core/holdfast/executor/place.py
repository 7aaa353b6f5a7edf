"""Where a state host lives: its folder, socket, locks and log.

``<base>/<name>/`` holds ``socket``, ``lock`` (held by the host for life) and ``start`` (held by whoever starts one);
logs are in ``<base>/logs/``, which stay when the host is gone. Locks are the kernel's, so they never outlive a process;
names that a killed host left behind mean nothing and are taken over or swept away.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from holdfast.errors import EnvironmentNotReady, HoldfastError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_SOCKET_PATH = 107
"""What the kernel allows for the path of a Unix socket."""

_NAME_LENGTH = 12
_NAME = rf"[0-9a-f]{{{_NAME_LENGTH}}}"

_LOCK_POLL_SECONDS = 0.02

_LOGS_STAY_SECONDS = 7 * 24 * 3600.0
"""How long the log of a host that is gone is kept."""


@dataclass(frozen=True)
class HostPlace:
    """The place of one host of one executor."""

    base: Path
    """A folder that belongs to this user alone."""

    name: str
    """Tells hosts apart."""

    @classmethod
    def of(cls, identity: str, process: int, base: str | None = None) -> HostPlace:
        """The place for an executor's ``process``-th host; ``identity`` says which executor of which application."""
        digest = hashlib.sha256(f"{identity}\0{process}".encode()).hexdigest()
        folder = Path(base) if base else Path(tempfile.gettempdir()) / f"holdfast-{os.geteuid()}"
        return cls(folder, digest[:_NAME_LENGTH])

    @property
    def folder(self) -> Path:
        """What is gone when the host is gone."""
        return self.base / self.name

    @property
    def socket(self) -> Path:
        """Where the host listens."""
        return self.folder / "socket"

    @property
    def log(self) -> Path:
        """The host's log; older parts have a number behind this name."""
        return self.base / "logs" / f"{self.name}.log"

    def prepare(self) -> None:
        """Make the folders, and refuse ones that somebody else could reach into."""
        if len(os.fsencode(self.socket)) > _LONGEST_SOCKET_PATH:
            raise EnvironmentNotReady(
                f"the socket path {self.socket} has more than the {_LONGEST_SOCKET_PATH} bytes of a Unix socket;"
                " set spark.holdfast.host.folder to a shorter one"
            )
        for folder in (self.base, self.folder, self.log.parent):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                found = folder.lstat()
            except OSError as error:
                raise EnvironmentNotReady(
                    f"the folder {folder} for state hosts cannot be made: {error.strerror};"
                    " set spark.holdfast.host.folder to another one"
                ) from error
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise EnvironmentNotReady(
                    f"the folder {folder} for state hosts is not a folder that only this user can use;"
                    " remove it, or set spark.holdfast.host.folder to another one"
                )

    @contextmanager
    def starting(self, timeout: float) -> Iterator[None]:
        """Be the only one who starts or removes this host."""
        deadline = monotonic() + timeout
        while (lock := self._try_lock("start")) is None:
            if monotonic() > deadline:
                raise Unavailable(
                    f"another process has been starting the state host in {self.folder} for {timeout:g} s;"
                    f" its log is {self.log}"
                )
            sleep(_LOCK_POLL_SECONDS)
        try:
            yield
        finally:
            os.close(lock)

    def occupy(self) -> int | None:
        """Become this place's host until the returned descriptor is closed; ``None`` if there is one already."""
        return self._try_lock("lock")

    def is_free(self) -> bool:
        """Whether no host has this place."""
        lock = self.occupy()
        if lock is not None:
            os.close(lock)
        return lock is not None

    def _try_lock(self, name: str) -> int | None:
        path = self.folder / name
        while True:
            self.prepare()
            try:
                opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # its folder was removed since
                continue
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(opened).st_ino == path.stat().st_ino:
                    return opened
            except BlockingIOError:
                os.close(opened)
                return None
            except FileNotFoundError:
                pass
            # What was locked is no longer what the name means: somebody removed the folder in between.
            os.close(opened)

    def remove(self) -> None:
        """Take away everything but the log; for whoever holds both locks."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def sweep(self) -> None:
        """Take away what killed hosts left behind in the base folder, and logs of long ago."""
        for folder in list(self.base.iterdir()):
            other = HostPlace(self.base, folder.name)
            if other != self and re.fullmatch(_NAME, folder.name):
                # What somebody else made there, or is removing at this moment, is no concern of this host.
                with suppress(OSError, HoldfastError):
                    other._remove_if_dead()
        # By the files' own times: the clock of this process may be another one than that of a shared disk.
        now = self.log.stat().st_mtime
        for log in list(self.log.parent.iterdir()):
            with suppress(OSError):
                if now - log.stat().st_mtime > _LOGS_STAY_SECONDS:
                    log.unlink()

    def _remove_if_dead(self) -> None:
        start = self._try_lock("start")
        if start is None:
            return
        try:
            life = self.occupy()
            if life is not None:
                self.remove()
                os.close(life)
        finally:
            os.close(start)
