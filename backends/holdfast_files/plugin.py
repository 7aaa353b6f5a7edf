"""What this package adds to Holdfast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import ProviderSpec, hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterable

SPARKS_NAME = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@hookimpl
def holdfast_providers() -> Iterable[ProviderSpec]:
    """Name the provider of this package."""
    from holdfast_files.provider import HDFSBackedStateStoreProvider

    return [ProviderSpec("files", HDFSBackedStateStoreProvider, aliases=(SPARKS_NAME,))]
