"""What this package adds to Holdfast; the entry point in pyproject.toml names this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import ProviderSpec, hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterable

SPARKS_NAME = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@hookimpl
def holdfast_providers() -> Iterable[ProviderSpec]:
    """Name the provider of this package."""
    from holdfast_rocksdb.provider import RocksDBStateStoreProvider

    return [ProviderSpec("rocksdb", RocksDBStateStoreProvider, aliases=(SPARKS_NAME,))]
