"""The store contract in a task's process: stores that live in the executor's state host."""

from __future__ import annotations

import json
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.executor.exchange import HostConnection
from holdfast.executor.launch import connect
from holdfast.executor.protocol import OpenSession, RunMaintenance
from holdfast.executor.remote import RemoteReadStore, RemoteStateStore
from holdfast.executor.settings import HostSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from holdfast.contract.provider import CommitGuard
    from holdfast.executor.launch import ExecutorInfo
    from holdfast.ids import StateStoreProviderId
    from holdfast.rpc.messages import Attempt

_OpenedT = TypeVar("_OpenedT")


class StateHostClient:
    """A process's way to the stores of its executor; starts the state host when there is none."""

    def __init__(self, executor: ExecutorInfo, conf: Mapping[str, str]) -> None:
        """``conf`` is Spark's configuration; hosts that this client starts go by it."""
        self._executor = executor
        self._conf = dict(conf)
        self._settings = HostSettings.parse(conf)
        self._lock = Lock()
        self._connections: dict[int, HostConnection] = {}

    def open(
        self,
        provider_id: StateStoreProviderId,
        key_schema: pa.Schema,
        value_schema: pa.Schema,
        key_index_ordinal: int | None,
        version: int,
        conf: Mapping[str, str],
        fs_options: Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        guard: CommitGuard | None = None,
        start_empty: bool = False,
        identity: str | None = None,
    ) -> RemoteStateStore:
        """Open ``version`` for writing; with ``start_empty`` a store without any state begins there.

        The driver gives the permission to publish to ``attempt``; a ``guard`` is asked instead, in this process.
        """
        opening = _opening(
            provider_id, key_schema, value_schema, key_index_ordinal, version, conf, fs_options,
            writable=True, attempt=attempt, start_empty=start_empty, identity=identity,
            ask_client=guard is not None,
        )  # fmt: skip
        return self._with_host(provider_id, lambda connection: RemoteStateStore(connection, opening, guard))

    def open_for_reading(
        self,
        provider_id: StateStoreProviderId,
        key_schema: pa.Schema,
        value_schema: pa.Schema,
        key_index_ordinal: int | None,
        version: int,
        conf: Mapping[str, str],
        fs_options: Mapping[str, Any],
        *,
        identity: str | None = None,
    ) -> RemoteReadStore:
        """Open ``version`` to look at it."""
        opening = _opening(
            provider_id, key_schema, value_schema, key_index_ordinal, version, conf, fs_options,
            writable=False, identity=identity,
        )  # fmt: skip
        return self._with_host(provider_id, lambda connection: RemoteReadStore(connection, opening))

    def run_maintenance(self, provider_id: StateStoreProviderId) -> None:
        """Maintain a loaded provider now, and wait for it."""
        self._with_host(provider_id, lambda connection: connection.ask(RunMaintenance(provider_id)))

    def _with_host(
        self, provider_id: StateStoreProviderId, open_store: Callable[[HostConnection], _OpenedT]
    ) -> _OpenedT:
        process = provider_id.store_id.partition_id % self._settings.processes
        connection = self._connection(process)
        try:
            return open_store(connection)
        except Unavailable:
            # A host that has ended since the last task is no reason to fail this one.
            self._forget(process, connection)
            return open_store(self._connection(process))

    def _connection(self, process: int) -> HostConnection:
        with self._lock:
            if process not in self._connections:
                place, client = connect(self._executor, process, self._conf)
                self._connections[process] = HostConnection(client, place.log, self._settings.request_timeout)
            return self._connections[process]

    def _forget(self, process: int, connection: HostConnection) -> None:
        with self._lock:
            if self._connections.get(process) is connection:
                del self._connections[process]

    def close(self) -> None:
        """Let go of all connections; hosts go on."""
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()


def _opening(
    provider_id: StateStoreProviderId,
    key_schema: pa.Schema,
    value_schema: pa.Schema,
    key_index_ordinal: int | None,
    version: int,
    conf: Mapping[str, str],
    fs_options: Mapping[str, Any],
    *,
    writable: bool,
    attempt: Attempt | None = None,
    start_empty: bool = False,
    identity: str | None = None,
    ask_client: bool = False,
) -> OpenSession:
    try:
        options = json.dumps(dict(fs_options))
    except TypeError as error:
        raise InvalidRequest(f"fs_options must be plain values that JSON has: {error}") from error
    key, value = (schema.serialize().to_pybytes() for schema in (key_schema, value_schema))
    return OpenSession(
        provider_id,
        version,
        key,
        value,
        key_index_ordinal,
        dict(conf),
        options,
        writable,
        attempt,
        start_empty,
        identity,
        ask_client,
    )
