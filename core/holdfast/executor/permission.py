"""Who says whether an open store may publish: the driver, by a grant, or the client's own guard."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from holdfast.errors import Fenced, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.contract.store import StateStore
    from holdfast.rpc.coordinator_ref import StateStoreCoordinatorRef
    from holdfast.rpc.messages import Grant

log = logging.getLogger(__name__)


class Permission(ABC):
    """The right of one open store to publish its next version."""

    @abstractmethod
    def check(self, store: StateStore) -> None:
        """Return if ``store`` may publish now, else raise ``Fenced``."""

    def committed(self, store: StateStore, counts: dict[str, int]) -> None:
        """Be told that the version was published, with what the task counted."""

    def released(self) -> None:
        """Be told that the store is gone without a commit."""


class AskedOfClient(Permission):
    """The client has a guard of its own and is asked over its session."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask

    def check(self, store: StateStore) -> None:
        self._ask()


class GrantedByDriver(Permission):
    """The driver is asked; no answer is no permission."""

    def __init__(self, coordinator: StateStoreCoordinatorRef, grant: Grant) -> None:
        self._coordinator = coordinator
        self._grant = grant

    def check(self, store: StateStore) -> None:
        try:
            self._coordinator.may_commit(self._grant.incarnation, self._grant.sequence)
        except Fenced:
            raise
        except HoldfastError as error:  # whatever it is: one that was started anew refuses its predecessor's token
            where = store.id.store_checkpoint_location()
            raise Fenced(
                f"version {store.version + 1} of {where} was not published: the driver, who has to agree, gave no"
                f" answer ({error})"
            ) from error

    def committed(self, store: StateStore, counts: dict[str, int]) -> None:
        metrics = store.metrics
        values = {metric.name: value for metric, value in metrics.custom_metrics.items()}
        self._coordinator.report_commit(
            self._grant.incarnation,
            self._grant.sequence,
            store.identity,
            {**counts, **values, "numRowsTotal": metrics.num_keys, "memoryUsedBytes": metrics.memory_used_bytes},
        )

    def released(self) -> None:
        try:
            self._coordinator.release(self._grant.incarnation, self._grant.sequence)
        except HoldfastError as error:  # it expires by itself
            log.debug("A grant could not be given back: %s", error)
