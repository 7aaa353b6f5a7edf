"""The hooks: what a plug-in can tell Holdfast, and what it can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.contract.filesystems import FilesystemAdapter
    from holdfast.contract.provider import StateStoreProvider
    from holdfast.ids import StateStoreId

PROJECT: Final = "holdfast"
"""Name of the pluggy project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """A provider and the names by which it can be chosen."""

    name: str
    """Short name for ``providerClass``; lower case."""

    provider: type[StateStoreProvider]
    """The class; its full name works in ``providerClass`` too."""

    aliases: tuple[str, ...] = ()
    """Further names that mean this provider, such as the JVM class that it stands in for."""


@hookspec
def holdfast_providers() -> Iterable[ProviderSpec]:  # type: ignore[empty-body]
    """Name the providers this package adds."""


@hookspec
def holdfast_filesystem_adapter(protocol: str) -> FilesystemAdapter | None:
    """Say how checkpoints are written on the filesystems that fsspec calls ``protocol``; None where it is not yours."""


@hookspec
def holdfast_provider_loaded(provider: StateStoreProvider) -> None:
    """Learn that ``provider`` was initialised in this process."""


@hookspec
def holdfast_store_committed(store_id: StateStoreId, version: int) -> None:
    """Learn that a store has published ``version``, in the process that did it."""


@hookspec
def holdfast_snapshot_written(store_id: StateStoreId, version: int, size: int) -> None:
    """Learn that maintenance has published a snapshot of ``version`` with ``size`` bytes."""
