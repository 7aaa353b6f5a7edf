"""The provider: state in a Redis that all executors share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from holdfast import Capability, Published, StateView, VersionedProvider
from holdfast_redis.keyspace import Keyspace
from holdfast_redis.server import Server
from holdfast_redis.settings import RedisSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast import Changes, Pair

_NEWEST_AND_THE_ONE_BEFORE = 2


class _View(StateView):
    def __init__(self, keyspace: Keyspace, version: int) -> None:
        self._keyspace = keyspace
        self._version = version
        self._identity, self._num_keys = keyspace.open(version)
        self.identity = self._identity

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._keyspace.get_many(self._version, self._identity, keys)

    def entries(self) -> Iterator[Pair]:
        return self._keyspace.entries(self._version, self._identity, self._num_keys)

    def num_keys(self) -> int:
        return self._num_keys


class _Empty(StateView):
    """Version 0, which is there without being stored."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def entries(self) -> Iterator[Pair]:
        return iter(())

    def num_keys(self) -> int:
        return 0


class RedisStateStoreProvider(VersionedProvider):
    """Keeps all stores in one Redis: an executor that takes a partition over has nothing to load."""

    capabilities: ClassVar = frozenset(
        {
            Capability.EXTERNAL,
            Capability.TIME_TRAVEL,
            Capability.RANGE_SCAN,
            Capability.PREFIX_SCAN,
            Capability.LATE_START,
        }
    )
    settings: ClassVar = RedisSettings
    fault_points: ClassVar[tuple[str, ...]] = (*VersionedProvider.fault_points, "redis.staged")

    def open(self) -> None:
        settings = RedisSettings.parse(self.conf.backend_confs)
        self._server = Server(settings)
        try:
            self._server.refuse_eviction()
            self._keyspace = Keyspace(self._server, settings.namespace, self.store_id)
        except BaseException:
            self._server.close()
            raise

    @property
    def location(self) -> str:
        return self._keyspace.location

    def open_view(self, version: int) -> StateView:
        return _View(self._keyspace, version) if version else _Empty()

    def publish(self, base: int, view: StateView, changes: Changes, ask: Callable[[], None]) -> Published:
        return Published(*self._keyspace.publish(base, view.identity or "", changes, ask))

    def start_at(self, version: int) -> None:
        if version:
            self._keyspace.start_at(version)

    def do_maintenance(self) -> None:
        self._keyspace.forget(max(_NEWEST_AND_THE_ONE_BEFORE, self.conf.min_versions_to_retain))

    def close(self) -> None:
        self._server.close()
