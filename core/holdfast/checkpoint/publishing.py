"""How a file becomes visible, whole or not at all: one small strategy per kind of filesystem.

Fault points, in order: ``publish.start``; ``publish.written`` (the content lies under a temporary name, where there is
one); ``publish.allowed`` (``ask`` has agreed); ``publish.visible`` (the file has its name).
"""

from __future__ import annotations

import errno
import inspect
import os
import secrets
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem

from holdfast.checkpoint.failures import MissingFile
from holdfast.contract.faults import fault_point
from holdfast.errors import UnsupportedOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.checkpoint.failures import Patience
    from holdfast.checkpoint.filesystems import Filesystem

OBJECT_STORES = frozenset({"abfs", "az", "gcs", "memory", "oss", "s3"})
"""Protocols where one PUT is atomic and a rename is a copy. Only those known to be so."""

REPLACING = frozenset({"hdfs_native"})
"""Packages whose rename replaces the target in one step when told to, so that its failure has another reason."""


class Publishing(ABC):
    """Writes, moves and removes files on one kind of filesystem."""

    def __init__(self, filesystem: Filesystem, patience: Patience) -> None:
        self._filesystem = filesystem
        self._patience = patience

    @abstractmethod
    def publish(self, path: str, data: bytes, ask: Callable[[], None], shown: str) -> None:
        """Give ``data`` the name ``path``. Whoever reads sees the old file or the new one, also after a crash.

        ``ask`` is called when only the visible step is left. If it raises, nothing stays behind.
        """

    def move(self, source: str, target: str, shown: str) -> None:
        """Rename a file; ``target`` is free."""
        self._call(f"move {shown}", lambda fs: fs.mv(source, target), absent=True)

    def remove(self, path: str, shown: str) -> None:
        """Delete a file; MissingFile if there is none."""
        self._call(f"remove {shown}", lambda fs: fs.rm_file(path), absent=True)

    def _call(
        self, doing: str, action: Callable[[Any], Any], before: Callable[[], None] | None = None, absent: bool = False
    ) -> None:
        if before is None:
            self._filesystem.call(self._patience, doing, action, absent=absent)
        else:
            self._filesystem.call(self._patience, doing, action, before=before, absent=absent)


class ObjectStorePublishing(Publishing):
    """One PUT: the store shows an object when it has all of it. Large ones are one multipart upload of fsspec's."""

    def publish(self, path: str, data: bytes, ask: Callable[[], None], shown: str) -> None:
        fault_point("publish.start")
        fault_point("publish.written")
        # Asked again before each attempt: between two of them another may have been allowed to write.
        self._call(f"write {shown}", lambda fs: fs.pipe_file(path, data), before=asking(ask))
        fault_point("publish.visible")

    def move(self, source: str, target: str, shown: str) -> None:
        self._call(f"copy {shown}", lambda fs: fs.cp_file(source, target), absent=True)
        fault_point("move.copied")
        with suppress(MissingFile):  # a retry whose first answer was lost
            self.remove(source, shown)


class LocalPublishing(Publishing):
    """Temporary file in the same folder, fsync, rename, fsync of the folder."""

    def publish(self, path: str, data: bytes, ask: Callable[[], None], shown: str) -> None:
        fault_point("publish.start")
        temporary = hidden_name(path)
        try:
            self._call(f"write {shown}", lambda _: self._write(temporary, data))
            fault_point("publish.written")
            self._call(f"write {shown}", lambda _: self._rename(temporary, path), before=asking(ask))
            fault_point("publish.visible")
            self._call(f"write {shown}", lambda _: sync_folder(os.path.dirname(path)))
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def move(self, source: str, target: str, shown: str) -> None:
        self._call(f"move {shown}", lambda _: self._rename(source, target), absent=True)
        self._call(f"move {shown}", lambda _: sync_folder(os.path.dirname(target)))

    def remove(self, path: str, shown: str) -> None:
        self._call(f"remove {shown}", lambda _: self._unlink(path), absent=True)

    def _write(self, temporary: str, data: bytes) -> None:
        try:
            opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        except FileNotFoundError:
            make_folder(os.path.dirname(temporary))
            opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        with os.fdopen(opened, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _rename(self, source: str, target: str) -> None:
        forget_checksum(source)
        forget_checksum(target)
        os.replace(source, target)

    def _unlink(self, path: str) -> None:
        forget_checksum(path)
        os.unlink(path)


class RenamingPublishing(Publishing):
    """Temporary file, then the filesystem's own rename (HDFS, SFTP, …)."""

    def publish(self, path: str, data: bytes, ask: Callable[[], None], shown: str) -> None:
        fault_point("publish.start")
        temporary = hidden_name(path)
        try:
            self._call(f"write {shown}", lambda fs: self._write(fs, temporary, data))
            fault_point("publish.written")
            self._call(f"write {shown}", lambda fs: self._rename(fs, temporary, path), before=asking(ask))
            temporary = ""
            fault_point("publish.visible")
        finally:
            if temporary:
                self._discard(temporary)

    def _discard(self, temporary: str) -> None:
        with suppress(Exception):  # whatever stopped the write says more than what stops the cleaning
            self._filesystem.fs.rm_file(temporary)

    def _write(self, fs: Any, temporary: str, data: bytes) -> None:
        fs.makedirs(temporary.rpartition("/")[0], exist_ok=True)
        fs.pipe_file(temporary, data)

    def _rename(self, fs: Any, source: str, target: str) -> None:
        takes = inspect.signature(fs.mv).parameters.values()
        overwrite = any(p.name == "overwrite" or p.kind is p.VAR_KEYWORD for p in takes)
        replaces = type(fs).__module__.partition(".")[0] in REPLACING
        try:
            fs.mv(source, target, **({"overwrite": True} if overwrite else {}))
        except Exception:
            if replaces or not (fs.exists(source) and fs.exists(target)):
                raise
            # This filesystem's rename does not replace. Only for an overwrite, and only here, a crash between the
            # two steps leaves no file; the version is then missing, never wrong.
            fs.rm_file(target)
            fault_point("publish.replacing")
            fs.mv(source, target)


def strategy_for(filesystem: Filesystem, patience: Patience) -> Publishing:
    """Choose how files are published on a filesystem."""
    if filesystem.protocol == "file":
        return LocalPublishing(filesystem, patience)
    if filesystem.protocol in OBJECT_STORES:
        return ObjectStorePublishing(filesystem, patience)
    if type(filesystem.fs).mv is AbstractFileSystem.mv:
        raise UnsupportedOperation(
            f"no atomic way is known to write to {filesystem.protocol}: its rename is a copy; use another filesystem"
        )
    return RenamingPublishing(filesystem, patience)


def asking(ask: Callable[[], None]) -> Callable[[], None]:
    """Return ``ask`` with the fault point that follows it."""

    def asked() -> None:
        ask()
        fault_point("publish.allowed")

    return asked


def hidden_name(path: str) -> str:
    """Return a new name beside ``path``; Spark ignores names that begin with a dot."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{secrets.token_hex(8)}.tmp"


def forget_checksum(path: str) -> None:
    """Remove the checksum that Hadoop keeps beside a local file: Spark refuses new content with an old checksum."""
    folder, name = os.path.split(path)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, f".{name}.crc"))


def sync_folder(folder: str) -> None:
    """Make the names in a folder survive a power failure."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as refused:
        if refused.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some network and user-space filesystems
            raise
    finally:
        os.close(opened)


def make_folder(folder: str) -> None:
    """Create a folder and its parents so that they survive a power failure."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for new in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(new)
        sync_folder(os.path.dirname(new))
