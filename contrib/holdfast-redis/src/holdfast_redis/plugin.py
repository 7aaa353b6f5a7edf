"""What this package adds to Holdfast; the entry point in pyproject.toml names this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import ProviderSpec, hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterable


@hookimpl
def holdfast_providers() -> Iterable[ProviderSpec]:
    """Name the provider of this package."""
    from holdfast_redis.provider import RedisStateStoreProvider

    return [ProviderSpec("redis", RedisStateStoreProvider)]
