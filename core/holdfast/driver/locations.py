"""Where providers are loaded: on leases that their hosts renew by reporting."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.rpc.messages import HostId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from uuid import UUID

    from holdfast.ids import StateStoreProviderId

_ANY_PROCESS: Final = ""
"""The process of a location that was reported for an executor as a whole."""


class Locations:
    """Which host has which provider. No locks, no clock: the caller says how late it is."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._hosts: dict[StateStoreProviderId, HostId] = {}
        self._deadlines: dict[HostId, float] = {}
        self._ended: set[UUID] = set()

    def claim(self, provider_id: StateStoreProviderId, host: HostId, now: float) -> None:
        """A host loaded a provider: from now on it is active there and nowhere else."""
        self._hosts[provider_id] = host
        self._renew(host, now)

    def claim_for_executor(self, provider_id: StateStoreProviderId, host: str, executor_id: str, now: float) -> None:
        """The same, where only the executor is known."""
        self.claim(provider_id, HostId(executor_id, host, _ANY_PROCESS), now)

    def report(
        self, host: HostId, loaded: Iterable[StateStoreProviderId], now: float
    ) -> tuple[StateStoreProviderId, ...]:
        """Renew the lease of a host; returns those of its providers that are active elsewhere, or of an ended run.

        What nobody else has is taken to be active at this host: a coordinator that was started anew learns where
        everything is.
        """
        self._renew(host, now)
        executor = replace(host, process=_ANY_PROCESS)
        if executor in self._deadlines:
            self._renew(executor, now)
        elsewhere = []
        for provider_id in loaded:
            holder = self.find(provider_id, now)
            if holder is None and provider_id.query_run_id not in self._ended:
                self._hosts[provider_id] = host
            elif holder not in {host, executor}:
                elsewhere.append(provider_id)
        return tuple(elsewhere)

    def find(self, provider_id: StateStoreProviderId, now: float) -> HostId | None:
        """The host that has the provider and still reports."""
        host = self._hosts.get(provider_id)
        return host if host is not None and now < self._deadlines[host] else None

    def of_run(self, run_id: UUID, now: float) -> Iterator[StateStoreProviderId]:
        """The providers of a run that are loaded somewhere."""
        for provider_id in self._hosts:
            if provider_id.query_run_id == run_id and self.find(provider_id, now) is not None:
                yield provider_id

    def drop_run(self, run_id: UUID) -> list[StateStoreProviderId]:
        """Forget the providers of a run, which ends with it; returns them."""
        self._ended.add(run_id)
        return self._drop(provider_id for provider_id in self._hosts if provider_id.query_run_id == run_id)

    def drop_executor(self, executor_id: str) -> list[StateStoreProviderId]:
        """Forget what was loaded on an executor; returns it."""
        return self._drop(provider_id for provider_id, host in self._hosts.items() if host.executor_id == executor_id)

    def drop_expired(self, now: float) -> dict[HostId, int]:
        """Forget the hosts that have stopped reporting; returns how many providers each had."""
        gone = {host: 0 for host, deadline in self._deadlines.items() if now >= deadline}
        for host in gone:
            gone[host] = len(self._drop(each for each, holder in self._hosts.items() if holder == host))
            del self._deadlines[host]
        return gone

    def _renew(self, host: HostId, now: float) -> None:
        self._deadlines[host] = now + self._lease

    def _drop(self, dropped: Iterable[StateStoreProviderId]) -> list[StateStoreProviderId]:
        gone = list(dropped)
        for provider_id in gone:
            del self._hosts[provider_id]
        return gone
