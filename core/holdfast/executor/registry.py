"""The providers that a host has loaded, and how a store is got from one."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from holdfast.contract.observer import Observer
from holdfast.contract.provider import CommitGuard
from holdfast.errors import Fenced, InvalidRequest
from holdfast.ids import check_number
from holdfast.plugins.registry import create_and_init

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from holdfast.conf import StateStoreConf
    from holdfast.contract.provider import StateStoreProvider
    from holdfast.contract.store import ReadStateStore, StateStore
    from holdfast.executor.permission import Permission
    from holdfast.ids import StateStoreId, StateStoreProviderId

log = logging.getLogger(__name__)


class PermissionGuard(CommitGuard):
    """Asks, for each store of one provider, the permission that the store was opened with."""

    def __init__(self) -> None:
        self._permissions: dict[int, Permission] = {}

    def admit(self, store: StateStore, permission: Permission) -> None:
        """Go by ``permission`` when ``store`` wants to publish."""
        self._permissions[id(store)] = permission

    def dismiss(self, store: ReadStateStore) -> None:
        """Forget a store that is done."""
        self._permissions.pop(id(store), None)

    def before_publish(self, store: StateStore) -> None:
        permission = self._permissions.get(id(store))
        if permission is None:
            where = store.id.store_checkpoint_location()
            raise Fenced(f"version {store.version + 1} of {where} may not be published: nobody gave permission")
        permission.check(store)


@dataclass
class LoadedProvider:
    """A place for one provider: empty until the first who needs it has loaded it."""

    loading: Lock = field(default_factory=Lock)
    provider: StateStoreProvider | None = None
    schemas: tuple[pa.Schema, pa.Schema, int | None] | None = None
    guard: PermissionGuard = field(default_factory=PermissionGuard)
    users: int = 0
    """Open stores, and maintenance while it runs; a provider in use is not closed."""


class SnapshotReports(Observer):
    """Tells of snapshots under the id of the loaded instance; the observer before it hears everything as before."""

    def __init__(
        self,
        before: Observer,
        provider_id: StateStoreProviderId,
        report: Callable[[StateStoreProviderId, int], None],
    ) -> None:
        self._before = before
        self._provider_id = provider_id
        self._report = report

    def store_committed(self, store_id: StateStoreId, version: int) -> None:
        self._before.store_committed(store_id, version)

    def snapshot_written(self, store_id: StateStoreId, version: int, size: int) -> None:
        self._before.snapshot_written(store_id, version, size)
        self._report(self._provider_id, version)


class LoadedProviders:
    """All providers of one host, by id; each is made once, whoever comes first."""

    def __init__(self, snapshot_written: Callable[[StateStoreProviderId, int], None]) -> None:
        """``snapshot_written`` is told of every snapshot of every provider; it must neither wait nor raise."""
        self._snapshot_written = snapshot_written
        self._lock = Lock()
        self._loaded: dict[StateStoreProviderId, LoadedProvider] = {}

    def ids(self) -> list[StateStoreProviderId]:
        """What is loaded now."""
        with self._lock:
            return [provider_id for provider_id, place in self._loaded.items() if place.provider is not None]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is loaded, and nobody is loading."""
        return not self._loaded

    @contextmanager
    def get(
        self,
        provider_id: StateStoreProviderId,
        key_schema: pa.Schema,
        value_schema: pa.Schema,
        key_index_ordinal: int | None,
        version: int,
        conf: StateStoreConf,
        fs_options: Mapping[str, Any],
        *,
        permission: Permission | None,
        identity: str | None = None,
        start_empty: bool = False,
    ) -> Iterator[ReadStateStore]:
        """Open ``version`` of a store until the block ends; for writing if ``permission`` to publish comes with it."""
        check_number("version", version)
        place = self._use(provider_id)
        try:
            with place.loading:
                schemas = (key_schema, value_schema, key_index_ordinal)
                if place.provider is None:
                    provider = create_and_init(provider_id.store_id, *schemas, conf, fs_options, place.guard)
                    provider.observer = SnapshotReports(provider.observer, provider_id, self._snapshot_written)
                    place.provider, place.schemas = provider, schemas
                    log.info("Loaded %s for run %s", place.provider, provider_id.query_run_id)
                elif place.schemas != schemas:
                    raise InvalidRequest(
                        f"{place.provider} is loaded with other schemas in run {provider_id.query_run_id};"
                        " one run of a query uses one schema"
                    )
                provider = place.provider
            if start_empty:
                provider.start_at(version)
            if permission is None:
                with provider.get_read_store(version, identity) as reading:
                    yield reading
                return
            with provider.get_store(version, identity) as store:
                place.guard.admit(store, permission)
                try:
                    yield store
                finally:
                    place.guard.dismiss(store)
        finally:
            self._leave(provider_id, place)

    @contextmanager
    def using(self, provider_id: StateStoreProviderId) -> Iterator[StateStoreProvider | None]:
        """A loaded provider that is not closed before the block ends; ``None`` if it is not loaded."""
        with self._lock:
            place = self._loaded.get(provider_id)
            if place is not None:
                place.users += 1
        if place is None:
            yield None
            return
        try:
            yield place.provider
        finally:
            self._leave(provider_id, place)

    def unload(self, provider_id: StateStoreProviderId) -> bool:
        """Close a provider unless it is in use; says whether it is gone."""
        with self._lock:
            place = self._loaded.get(provider_id)
            if place is None:
                return True
            if place.users:
                return False
            del self._loaded[provider_id]
        if place.provider is not None:
            place.provider.close()
        return True

    def _use(self, provider_id: StateStoreProviderId) -> LoadedProvider:
        with self._lock:
            place = self._loaded.setdefault(provider_id, LoadedProvider())
            place.users += 1
            return place

    def _leave(self, provider_id: StateStoreProviderId, place: LoadedProvider) -> None:
        with self._lock:
            place.users -= 1
            if not place.users and place.provider is None:  # it could not be loaded
                self._loaded.pop(provider_id, None)
