"""Being told what happens to stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.ids import StateStoreId


class Observer:
    """Is told what a provider does; this one does not care. An observer never makes a provider fail."""

    def store_committed(self, store_id: StateStoreId, version: int) -> None:
        """``version`` can be opened from now on."""

    def snapshot_written(self, store_id: StateStoreId, version: int, size: int) -> None:
        """A snapshot of ``version`` with ``size`` bytes was published."""
