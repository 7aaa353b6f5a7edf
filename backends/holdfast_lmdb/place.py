"""Where environments lie, who uses them, and which of them can be trusted.

``<folder>/<name>/<slot>/`` holds one environment: ``lock`` (held by the process that uses it, for as long as it
does), ``state.json`` (what is known about ``data.mdb``) and LMDB's own files. The name stands for the store; a process
that finds a slot taken uses the next one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.errors import EnvironmentNotReady
from holdfast_lmdb import probe

log = logging.getLogger(__name__)

_FORMAT = 2
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROBE_SECONDS = 600
_DATA = "data.mdb"
_MARKER = "state.json"
_LOCK = "lock"


def environment_name(*parts: object) -> str:
    """The name of the environments for one store with one schema."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:24]


def boot_id() -> str | None:
    """Tells one run of this machine from the next; ``None`` where nothing does."""
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None


class Place:
    """A slot that this process holds; nobody else opens or removes it meanwhile."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    @classmethod
    def take(cls, base: Path, name: str) -> Place:
        """Hold the first slot of ``name`` that is free."""
        slot = 0
        while True:
            folder = base / name / str(slot)
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = _try_lock(folder)
            except OSError as error:
                raise EnvironmentNotReady(
                    f"the folder {folder} for an LMDB environment cannot be used: {error.strerror};"
                    " set spark.holdfast.lmdb.localDir to another one"
                ) from error
            if lock is not None:
                return cls(folder, lock)
            slot += 1

    def prepare(self) -> bool:
        """Make the slot ready to be opened; says whether there is something in it that can be trusted."""
        trusted = self._is_trusted()
        if not trusted:
            self.discard()
        # Whoever was reading is gone: LMDB's table of readers starts anew.
        (self.folder / "lock.mdb").unlink(missing_ok=True)
        return trusted

    def _is_trusted(self) -> bool:
        data = self.folder / _DATA
        try:
            found = data.stat()
        except FileNotFoundError:
            return False
        marker = _read_marker(self.folder)
        # Nothing is ever synchronised to the disk, so what was written before the machine went down may be lost.
        if marker.get("format") != _FORMAT or marker.get("boot") is None or marker["boot"] != boot_id():
            why = "the machine was started anew since, or nobody knows"
        elif marker.get("inode") != found.st_ino:
            why = "it is a copy"
        elif marker.get("closed") is None:
            if self._survives_probe():
                return True
            why = "it was not closed, and is damaged"
        elif marker["closed"] != [found.st_size, found.st_mtime_ns]:
            why = "it was changed since it was closed"
        else:
            return True
        log.warning("The LMDB environment %s is not used again: %s", self.folder, why)
        return False

    def _survives_probe(self) -> bool:
        command = [sys.executable, probe.__file__, str(self.folder)]
        # LMDB may be importable only by a path that this process was given.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            ended = subprocess.run(  # noqa: S603 - our own file, with our own folder
                command, env=environment, capture_output=True, check=False, timeout=_PROBE_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False
        return ended.returncode == 0

    def mark_open(self) -> None:
        """Record that ``data.mdb`` is in use: if this stays, its user was killed."""
        self._mark(None)

    def mark_closed(self) -> None:
        """Record what ``data.mdb`` looks like: if it looks the same later, nobody has touched it."""
        found = (self.folder / _DATA).stat()
        self._mark([found.st_size, found.st_mtime_ns])

    def _mark(self, closed: list[int] | None) -> None:
        inode = (self.folder / _DATA).stat().st_ino
        text = json.dumps({"format": _FORMAT, "boot": boot_id(), "inode": inode, "closed": closed})
        temporary = self.folder / f"{_MARKER}.new"
        temporary.write_text(text)
        os.replace(temporary, self.folder / _MARKER)

    def discard(self) -> None:
        """Remove everything but the lock."""
        _remove_contents(self.folder)

    def leave(self) -> None:
        """Let others have the slot."""
        os.close(self._lock)


def sweep(base: Path, unused_for: float) -> int:
    """Remove the environments below ``base`` that nobody has used for so many seconds; returns how many."""
    removed = 0
    clock = base / ".clock"
    try:
        clock.touch()
        # By the files' own times: the clock of this process may be another one than the disk's.
        now = clock.stat().st_mtime
    except OSError:
        return 0
    for folder in list(base.glob("*/[0-9]*")):
        with suppress(OSError):
            if now - max(path.stat().st_mtime for path in folder.iterdir()) < unused_for:
                continue
            lock = _try_lock(folder)
            if lock is None:
                continue
            try:
                shutil.rmtree(folder)
                removed += 1
                folder.parent.rmdir()  # fails while there is another slot
            finally:
                os.close(lock)
    return removed


def _read_marker(folder: Path) -> dict[str, Any]:
    try:
        marker = json.loads((folder / _MARKER).read_text())
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def _remove_contents(folder: Path) -> None:
    # The marker first: what is half removed is not trusted.
    for path in sorted(folder.iterdir(), key=lambda path: path.name != _MARKER):
        if path.name != _LOCK:
            path.unlink()


def _try_lock(folder: Path) -> int | None:
    path = folder / _LOCK
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Locked, but perhaps no longer what the name means: somebody removed the folder in between.
        if os.fstat(opened).st_ino == path.stat().st_ino:
            return opened
    except OSError as error:
        os.close(opened)
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.ENOENT):
            return None
        raise
    os.close(opened)
    return None
