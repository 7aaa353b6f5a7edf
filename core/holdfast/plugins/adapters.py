"""Asking plug-ins how to write on a filesystem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.contract.filesystems import FilesystemAdapter, FilesystemAdapters
from holdfast.errors import BrokenPlugin

if TYPE_CHECKING:
    import pluggy


class HookAdapters(FilesystemAdapters):
    """The adapters of the installed plug-ins. One that fails is not passed over: it is there to keep state safe."""

    def __init__(self, hook: pluggy.HookRelay) -> None:
        self._hook = hook

    def find(self, protocol: str) -> FilesystemAdapter | None:
        found: dict[str, FilesystemAdapter] = {}
        for implementation in self._hook.holdfast_filesystem_adapter.get_hookimpls():
            name = implementation.plugin_name
            try:
                adapter = implementation.function(*(protocol for _ in implementation.argnames))
            except Exception as error:
                raise BrokenPlugin(
                    f"plug-in {name} failed in holdfast_filesystem_adapter: {type(error).__name__}: {error}"
                ) from error
            if isinstance(adapter, FilesystemAdapter):
                found[name] = adapter
            elif adapter is not None:
                raise BrokenPlugin(
                    f"plug-in {name} returned {type(adapter).__name__} from holdfast_filesystem_adapter; return a"
                    " holdfast.FilesystemAdapter, or None for a filesystem that is not its own"
                )
        if len(found) > 1:
            raise BrokenPlugin(f"plug-ins {' and '.join(found)} both adapt the filesystem {protocol}; uninstall one")
        return next(iter(found.values()), None)
