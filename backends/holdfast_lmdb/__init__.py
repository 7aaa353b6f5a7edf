"""State in LMDB on the executor's disk, over the log: larger than memory, and warm after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast_lmdb.provider import LmdbStateStoreProvider

__all__ = ["LmdbStateStoreProvider"]


def __getattr__(name: str) -> Any:
    # Loaded when asked for: the library it needs is an extra, and without it the others must still be found.
    if name != "LmdbStateStoreProvider":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast_lmdb.provider import LmdbStateStoreProvider

    return LmdbStateStoreProvider
