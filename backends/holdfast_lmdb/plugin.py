"""What this package adds to Holdfast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import ProviderSpec, hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def holdfast_providers() -> Iterable[ProviderSpec]:
    """Name the provider of this package, if what it needs is installed: it is an extra."""
    try:
        from holdfast_lmdb.provider import LmdbStateStoreProvider
    except ModuleNotFoundError as missing:
        if missing.name != "lmdb":
            raise
        return []
    return [ProviderSpec("lmdb", LmdbStateStoreProvider)]
