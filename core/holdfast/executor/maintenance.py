"""The background work of a host: telling the driver what is loaded, and maintaining or unloading it."""

from __future__ import annotations

import logging
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.executor.registry import LoadedProviders
    from holdfast.ids import StateStoreProviderId
    from holdfast.rpc.coordinator_ref import StateStoreCoordinatorRef
    from holdfast.rpc.messages import HostId

log = logging.getLogger(__name__)


class Periodic(Thread):
    """Runs something again and again, on its own thread, until told to stop."""

    def __init__(self, name: str, interval: float, work: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._interval = interval
        self._work = work
        self._wake = Event()
        self._stopped = Event()

    def wake(self) -> None:
        """Do not wait for the next interval."""
        self._wake.set()

    def stop(self, patience: float) -> None:
        """End after what is being done now, for which so many seconds are waited."""
        self._stopped.set()
        self._wake.set()
        self.join(patience)

    def run(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait(self._interval)
            self._wake.clear()
            try:
                if not self._stopped.is_set():
                    self._work()
            except Exception:
                log.exception("%s failed; it goes on at the next interval", self.name)


class Heartbeat:
    """Reports all loaded providers in one message, and knows since when the driver has been silent."""

    def __init__(self, coordinator: StateStoreCoordinatorRef, host: HostId, loaded: LoadedProviders) -> None:
        self._coordinator = coordinator
        self._host = host
        self._loaded = loaded
        self._answered = monotonic()

    def beat(self) -> tuple[StateStoreProviderId, ...]:
        """Report; returns what the driver says is active elsewhere by now."""
        try:
            elsewhere = self._coordinator.report_instances(self._host, tuple(self._loaded.ids()))
        except HoldfastError as error:
            log.warning("The driver did not take the report (silent for %.0f s): %s", self.silent_for(), error)
            return ()
        self._answered = monotonic()
        return elsewhere

    def silent_for(self) -> float:
        """Seconds since the driver last answered."""
        return monotonic() - self._answered


class Maintenance:
    """Maintains what is active here and unloads what is not; a failure concerns one provider only."""

    def __init__(self, loaded: LoadedProviders, is_active: Callable[[StateStoreProviderId], bool]) -> None:
        """``is_active`` raises when nobody can say; then nothing is done."""
        self._loaded = loaded
        self._is_active = is_active

    def run(self) -> None:
        """Go through all loaded providers once."""
        for provider_id in self._loaded.ids():
            try:
                active = self._is_active(provider_id)
            except HoldfastError as error:
                log.warning("Which stores are active here is not known, so they are left alone: %s", error)
                return
            # What is unloaded is maintained a last time: nobody may come back to it for long.
            healthy = self._maintain(provider_id)
            if not active or not healthy:
                self._unload(provider_id, "is not active here any more" if healthy else "failed in maintenance")

    def _maintain(self, provider_id: StateStoreProviderId) -> bool:
        with self._loaded.using(provider_id) as provider:
            try:
                if provider is not None:
                    provider.do_maintenance()
            except Exception:
                log.exception("Error managing %s, unloading it", _shown(provider_id))
                return False
        return True

    def _unload(self, provider_id: StateStoreProviderId, why: str) -> None:
        try:
            if self._loaded.unload(provider_id):
                log.info("Unloaded %s, which %s", _shown(provider_id), why)
        except Exception:
            log.exception("Error closing %s", _shown(provider_id))


def _shown(provider_id: StateStoreProviderId) -> str:
    return f"{provider_id.store_id.store_checkpoint_location()} of run {provider_id.query_run_id}"
