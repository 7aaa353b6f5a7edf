"""Telling plug-ins what happens. One that fails is logged, and the others are told all the same."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.contract.observer import Observer

if TYPE_CHECKING:
    import pluggy

    from holdfast.contract.provider import StateStoreProvider
    from holdfast.ids import StateStoreId

log = logging.getLogger(__name__)


class HookObserver(Observer):
    """Passes everything on to the hooks of the installed plug-ins."""

    def __init__(self, hook: pluggy.HookRelay) -> None:
        self._hook = hook

    def provider_loaded(self, provider: StateStoreProvider) -> None:
        """``provider`` was initialised."""
        self._tell("holdfast_provider_loaded", provider=provider)

    def store_committed(self, store_id: StateStoreId, version: int) -> None:
        self._tell("holdfast_store_committed", store_id=store_id, version=version)

    def snapshot_written(self, store_id: StateStoreId, version: int, size: int) -> None:
        self._tell("holdfast_snapshot_written", store_id=store_id, version=version, size=size)

    def _tell(self, hook: str, **facts: Any) -> None:
        # One by one: a hook call of pluggy's ends with the first plug-in that raises.
        for implementation in getattr(self._hook, hook).get_hookimpls():
            try:
                implementation.function(*(facts[name] for name in implementation.argnames))
            except Exception:
                log.warning("Plug-in %s failed in %s", implementation.plugin_name, hook, exc_info=True)
