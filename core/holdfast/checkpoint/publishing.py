"""How a file becomes visible, whole or not at all: one small strategy per kind of filesystem.

Fault points, in order: ``publish.start``; ``publish.written`` (the content lies under a temporary name, where there is
one); ``publish.allowed`` (``ask`` has agreed); ``publish.exists`` (there was a file of that name, and ``ask`` comes
again); ``publish.visible`` (the file has its name).
"""

from __future__ import annotations

import errno
import inspect
import logging
import os
import secrets
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFile

from holdfast.checkpoint.failures import MissingFile, is_taken, is_unknown_condition
from holdfast.checkpoint.filesystems import nothing
from holdfast.contract.faults import fault_point
from holdfast.errors import UnsupportedOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.checkpoint.failures import Patience
    from holdfast.checkpoint.filesystems import Filesystem
    from holdfast.contract.filesystems import FilesystemAdapter

T = TypeVar("T")

log = logging.getLogger(__name__)

OBJECT_STORES = frozenset({"abfs", "az", "gcs", "memory", "oss", "s3"})
"""Protocols where one PUT is atomic and a rename is a copy. Only those known to be so."""

CONDITIONAL = frozenset({"gcs", "s3"})
"""Object stores whose package makes a condition of the request out of ``mode="create"``. Only those known to."""

REPLACING = frozenset({"hdfs_native"})
"""Packages whose rename replaces the target in one step when told to, so that its failure has another reason."""

NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class Publishing(ABC):
    """Writes, moves and removes files on one kind of filesystem.

    A strategy says how content gets its name (``_create``, ``_replace``) and, where that takes a temporary file, how
    it is written and cleared away (``_stage``, ``_settle``, ``_discard``).
    """

    def __init__(self, filesystem: Filesystem, patience: Patience) -> None:
        self._filesystem = filesystem
        self._patience = patience

    def publish(self, path: str, data: bytes, ask: Callable[[], None] | None, shown: str) -> None:
        """Give ``data`` the name ``path``. Whoever reads sees the old file or the new one, also after a crash.

        ``ask`` is called when only the visible step is left. If it raises, nothing stays behind. That step creates
        only: a file that is there already may have come from another attempt after ``ask`` agreed, so it is replaced
        only when ``ask`` agrees once more. Without ``ask``, whatever is there is replaced.
        """
        fault_point("publish.start")
        temporary = hidden_name(path)
        try:
            self._stage(temporary, data, shown)
            fault_point("publish.written")
            if ask is None:
                self._when_allowed(self._replace, temporary, path, data, nothing, shown)
            elif not self._when_allowed(self._create, temporary, path, data, ask, shown):
                fault_point("publish.exists")
                self._when_allowed(self._replace, temporary, path, data, ask, shown)
            fault_point("publish.visible")
            self._settle(temporary, path, shown)
        except BaseException:
            self._discard(temporary)
            raise

    def _when_allowed(
        self,
        step: Callable[[Any, str, str, bytes], T],
        temporary: str,
        path: str,
        data: bytes,
        ask: Callable[[], None],
        shown: str,
    ) -> T:
        def allowed() -> None:
            # Before each attempt: between two of them another may have been allowed to write.
            ask()
            fault_point("publish.allowed")

        return self._call(f"write {shown}", lambda fs: step(fs, temporary, path, data), before=allowed)

    def _stage(self, temporary: str, data: bytes, shown: str) -> None:
        """Write the content under a temporary name, where it takes one."""

    def _create(self, fs: Any, temporary: str, path: str, data: bytes) -> bool:
        """Make the file visible unless there is one of that name; False if there is."""
        # No way is known that is sound here. The guard has agreed a moment ago.
        self._replace(fs, temporary, path, data)
        return True

    @abstractmethod
    def _replace(self, fs: Any, temporary: str, path: str, data: bytes) -> None:
        """Make the file visible, in the place of another if there is one."""

    def _settle(self, temporary: str, path: str, shown: str) -> None:
        """Do what is left once the file is visible."""

    def _discard(self, temporary: str) -> None:
        """Clear away what an attempt that failed has left."""

    def move(self, source: str, target: str, shown: str) -> None:
        """Rename a file; ``target`` is free."""
        self._call(f"move {shown}", lambda fs: fs.mv(source, target), absent=True)

    def remove(self, path: str, shown: str) -> None:
        """Delete a file; MissingFile if there is none."""
        self._call(f"remove {shown}", lambda fs: fs.rm_file(path), absent=True)

    def _call(
        self, doing: str, action: Callable[[Any], T], before: Callable[[], None] = nothing, absent: bool = False
    ) -> T:
        return self._filesystem.call(self._patience, doing, action, before=before, absent=absent)


class ObjectStorePublishing(Publishing):
    """One PUT: the store shows an object when it has all of it. Large ones are one multipart upload of fsspec's."""

    def _replace(self, fs: Any, temporary: str, path: str, data: bytes) -> None:
        fs.pipe_file(path, data)

    def move(self, source: str, target: str, shown: str) -> None:
        self._call(f"copy {shown}", lambda fs: fs.cp_file(source, target), absent=True)
        fault_point("move.copied")
        with suppress(MissingFile):  # a retry whose first answer was lost
            self.remove(source, shown)


class ConditionalPublishing(ObjectStorePublishing):
    """A PUT on the condition that there is no such object. A store that ignores it is as good as one without."""

    def _create(self, fs: Any, temporary: str, path: str, data: bytes) -> bool:
        if not self._filesystem.takes_conditions:
            return super()._create(fs, temporary, path, data)
        try:
            fs.pipe_file(path, data, mode="create")
        except Exception as error:
            if is_unknown_condition(error):
                log.info("%s takes no conditional writes: %r", self._filesystem.protocol, type(error).__name__)
                self._filesystem.takes_conditions = False
            elif not is_taken(error):
                raise
            return False
        return True


class MemoryPublishing(ObjectStorePublishing):
    """fsspec's memory filesystem: a dict of this process."""

    def _create(self, fs: Any, temporary: str, path: str, data: bytes) -> bool:
        made = MemoryFile(fs, path, data)
        # One step of a dict; fsspec's own exclusive mode looks first and writes then.
        return fs.store.setdefault(path, made) is made


class LocalPublishing(Publishing):
    """Temporary file in the same folder, fsync, hard link or rename, fsync of the folder."""

    def _stage(self, temporary: str, data: bytes, shown: str) -> None:
        self._call(f"write {shown}", lambda _: self._write(temporary, data))

    def _create(self, fs: Any, temporary: str, path: str, data: bytes) -> bool:
        try:
            if not os.path.lexists(path):
                forget_checksum(path)
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as refused:
            if refused.errno not in NO_HARD_LINKS:
                raise
            return super()._create(fs, temporary, path, data)
        return True

    def _replace(self, fs: Any, temporary: str, path: str, data: bytes) -> None:
        self._rename(temporary, path)

    def _settle(self, temporary: str, path: str, shown: str) -> None:
        self._discard(temporary)
        self._call(f"write {shown}", lambda _: sync_folder(os.path.dirname(path)))

    def _discard(self, temporary: str) -> None:
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

    def _stage(self, temporary: str, data: bytes, shown: str) -> None:
        self._call(f"write {shown}", lambda fs: self._write(fs, temporary, data))

    def _write(self, fs: Any, temporary: str, data: bytes) -> None:
        fs.makedirs(temporary.rpartition("/")[0], exist_ok=True)
        fs.pipe_file(temporary, data)

    def _create(self, fs: Any, temporary: str, path: str, data: bytes) -> bool:
        try:
            # Where a rename replaces by itself, as SFTP's does, there is no better one.
            fs.mv(temporary, path)
        except Exception:
            if not (fs.exists(temporary) and fs.exists(path)):
                raise
            return False
        return True

    def _replace(self, fs: Any, temporary: str, path: str, data: bytes) -> None:
        takes = inspect.signature(fs.mv).parameters.values()
        overwrite = any(p.name == "overwrite" or p.kind is p.VAR_KEYWORD for p in takes)
        replaces = type(fs).__module__.partition(".")[0] in REPLACING
        try:
            fs.mv(temporary, path, **({"overwrite": True} if overwrite else {}))
        except Exception:
            if replaces or not (fs.exists(temporary) and fs.exists(path)):
                raise
            # This filesystem's rename does not replace. Only for an overwrite, and only here, a crash between the
            # two steps leaves no file; the version is then missing, never wrong.
            fs.rm_file(path)
            fault_point("publish.replacing")
            fs.mv(temporary, path)

    def _discard(self, temporary: str) -> None:
        with suppress(Exception):  # whatever stopped the write says more than what stops the cleaning
            self._filesystem.fs.rm_file(temporary)


class AdaptedPublishing(Publishing):
    """As a plug-in says."""

    def __init__(self, filesystem: Filesystem, patience: Patience, adapter: FilesystemAdapter) -> None:
        super().__init__(filesystem, patience)
        self._adapter = adapter

    def _create(self, fs: Any, temporary: str, path: str, data: bytes) -> bool:
        return self._adapter.create(fs, path, data)

    def _replace(self, fs: Any, temporary: str, path: str, data: bytes) -> None:
        self._adapter.replace(fs, path, data)

    def move(self, source: str, target: str, shown: str) -> None:
        self._call(f"move {shown}", lambda fs: self._adapter.move(fs, source, target), absent=True)


def strategy_for(filesystem: Filesystem, patience: Patience) -> Publishing:
    """Choose how files are published on a filesystem."""
    protocol = filesystem.protocol
    if protocol == "file":
        return LocalPublishing(filesystem, patience)
    if protocol == "memory":
        return MemoryPublishing(filesystem, patience)
    if protocol in CONDITIONAL:
        return ConditionalPublishing(filesystem, patience)
    if protocol in OBJECT_STORES:
        return ObjectStorePublishing(filesystem, patience)
    if type(filesystem.fs).mv is AbstractFileSystem.mv:
        raise UnsupportedOperation(
            f"no atomic way is known to write to {protocol}: its rename is a copy; use another filesystem"
        )
    return RenamingPublishing(filesystem, patience)


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
