"""How a plug-in tells Holdfast to write files on a filesystem that Holdfast does not know well enough."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class FilesystemAdapter(ABC):
    """Writes and moves the files of checkpoints on one kind of filesystem.

    ``fs`` is the fsspec filesystem, and paths are as it wants them. Errors are the filesystem's
    own: they are translated, and calls that may succeed in a moment are made again, by the caller.
    """

    @abstractmethod
    def replace(self, fs: Any, path: str, data: bytes) -> None:
        """Write a file in one step, in the place of another if there is one.

        Whoever reads meanwhile sees the old content or the new, also after a crash.
        """

    def create(self, fs: Any, path: str, data: bytes) -> bool:
        """Write a file in one step unless there is one of that name; False if there is.

        It keeps a writer that was paused for too long from overwriting what another one wrote
        since. Without a sound way to do it, leave it as it is.
        """
        self.replace(fs, path, data)
        return True

    def move(self, fs: Any, source: str, target: str) -> None:
        """Rename a file; ``target`` is free. A crash may leave both, never neither."""
        fs.mv(source, target)


class FilesystemAdapters:
    """The adapters that are there; here there are none."""

    def find(self, protocol: str) -> FilesystemAdapter | None:
        """The adapter of the filesystems that fsspec calls ``protocol``."""
        return None
