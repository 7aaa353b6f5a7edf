"""One folder of a checkpoint, on any filesystem that fsspec reaches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.checkpoint.failures import MissingFile, Patience
from holdfast.checkpoint.filesystems import Filesystem, filesystem_for
from holdfast.checkpoint.publishing import AdaptedPublishing, Publishing, strategy_for
from holdfast.checkpoint.urls import checked_name, locate
from holdfast.contract.filesystems import FilesystemAdapters
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast.contract.filesystems import FilesystemAdapter

__all__ = ["Folder", "MissingFile", "Patience"]

# Aliases, because inside the class "list" is a method.
Contents: TypeAlias = list[bytes]
Names: TypeAlias = list[str]
Entries: TypeAlias = list[dict[str, Any]]

PARALLEL = 16
"""Files read or removed at a time."""

ORDINARY = Patience()
NO_ADAPTERS = FilesystemAdapters()


class Folder:
    """One folder of a checkpoint, on any filesystem that fsspec reaches.

    Nothing is cached: every call asks the store. Threads may share a folder, and a forked child may go on using it.
    What the store refuses is `Unavailable`, with the store's own message, after the retries that ``patience`` allows.
    """

    __slots__ = ("_adapter", "_filesystem", "_path", "_patience", "_shown")

    def __init__(
        self,
        filesystem: Filesystem,
        path: str,
        shown: str,
        patience: Patience,
        adapter: FilesystemAdapter | None = None,
    ) -> None:
        self._filesystem = filesystem
        self._path = path.rstrip("/")
        self._shown = shown.rstrip("/")
        self._patience = patience
        self._adapter = adapter

    @classmethod
    def open(
        cls,
        url: str,
        fs_options: Mapping[str, Any] = {},
        *,
        patience: Patience = ORDINARY,
        adapters: FilesystemAdapters = NO_ADAPTERS,
    ) -> Folder:
        """Return the folder at a URL in Hadoop's spelling or at a plain path; it need not exist.

        ``fs_options`` are those of the fsspec filesystem: see its documentation.
        """
        location = locate(url)
        filesystem = filesystem_for(location, fs_options)
        filesystem.call(patience, f"open {location.shown}", lambda fs: fs)  # a wrong option is an error here
        path = location.path or filesystem.path_of(location.url)
        return cls(filesystem, path, location.shown, patience, adapters.find(location.protocol))

    @property
    def shown(self) -> str:
        """The URL for messages and logs; never holds a secret."""
        return self._shown or "/"

    def __repr__(self) -> str:
        return f"Folder({self.shown!r})"

    def child(self, *names: str) -> Folder:
        """Return a folder below this one; it need not exist."""
        below = "".join("/" + checked_name(name) for name in names)
        return Folder(self._filesystem, self._path + below, self._shown + below, self._patience, self._adapter)

    def read(self, name: str) -> bytes:
        """Return the content of a file; MissingFile if there is none."""
        path = self._at(name)
        content: bytes = self._call(f"read {self._shown}/{name}", lambda fs: fs.cat_file(path), absent=True)
        return content

    def read_many(self, names: Sequence[str]) -> Contents:
        """Return the contents of several files, read in parallel, in the order of their names."""
        return [*self._in_parallel(self.read, names)]

    def publish(self, name: str, data: bytes, ask: Callable[[], None] | None = None) -> None:
        """Write a file, or overwrite it: the old content or the new is there at any time, also after a crash.

        ``ask`` is called when only the visible step is left, and once more before a file that is there already is
        overwritten and for each retry. If it raises, nothing stays behind and its error passes as it is. After
        Unavailable, the old or the new content is there.
        """
        self._publishing().publish(self._at(name), data, ask, f"{self._shown}/{name}")

    def list(self) -> dict[str, int]:
        """Return name and size of each file directly in the folder; nothing if there is no such folder."""
        return {name: int(size or 0) for name, kind, size in self._entries() if kind != "directory"}

    def folders(self) -> Names:
        """Return the names of the folders directly in this one."""
        return sorted({name for name, kind, _ in self._entries() if kind == "directory"})

    def remove(self, names: Iterable[str]) -> None:
        """Delete files; those that are not there are fine."""
        publishing = self._publishing()

        def remove_one(name: str) -> None:
            try:
                publishing.remove(self._at(name), f"{self._shown}/{name}")
            except MissingFile:
                return

        self._in_parallel(remove_one, [*names])

    def set_aside(self, name: str) -> str:
        """Rename a file so that nobody reads it as state, and return its new name; MissingFile if there is none.

        The new name has three parts (``12.delta.aside``): Spark reads files with two.
        """
        taken = self.list()
        if name not in taken:
            raise MissingFile(f"cannot set aside {self._shown}/{name}: there is no such file")
        number, target = 1, f"{name}.aside"
        while target in taken:
            number += 1
            target = f"{name}.aside{number}"
        self._publishing().move(self._at(name), self._at(target), f"{self._shown}/{name}")
        return target

    def _at(self, name: str) -> str:
        return f"{self._path}/{checked_name(name)}"

    def _call(self, doing: str, action: Callable[[Any], Any], absent: bool = False) -> Any:
        return self._filesystem.call(self._patience, doing, action, absent=absent)

    def _publishing(self) -> Publishing:
        if self._adapter is not None:
            return AdaptedPublishing(self._filesystem, self._patience, self._adapter)
        return strategy_for(self._filesystem, self._patience)

    def _in_parallel(self, action: Callable[[str], Any], names: Sequence[str]) -> Any:
        if len(names) < 2:
            return [action(name) for name in names]
        with ThreadPoolExecutor(min(len(names), PARALLEL), "holdfast-storage") as pool:
            try:
                return [*pool.map(action, names)]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _entries(self) -> Iterable[tuple[str, str, Any]]:
        """Yield name, type and size of what is directly in the folder."""
        try:
            entries: Entries = self._call(
                f"list {self.shown}", lambda _: self._filesystem.entries(self._path or "/"), absent=True
            )
        except MissingFile:
            return
        for entry in entries:
            path = str(entry["name"])
            # Some stores list the folder too: as a folder, or as the empty object "folder/" that marks one.
            if path.rstrip("/").rpartition("/")[0].lstrip("/") == self._path.lstrip("/") and not (
                path.endswith("/") and entry["type"] != "directory"
            ):
                yield path.rstrip("/").rpartition("/")[2], entry["type"], entry["size"]
            elif path.lstrip("/") == self._path.lstrip("/") and entry["type"] == "file":
                raise Unavailable(f"cannot list {self.shown}: it is a file, not a folder")
