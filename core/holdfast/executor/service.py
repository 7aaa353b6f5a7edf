"""The state host's server: opens stores for clients and serves them."""

from __future__ import annotations

import json
import logging
import secrets
from contextlib import contextmanager, suppress
from threading import Condition
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from holdfast.conf import StateStoreConf
from holdfast.errors import HoldfastError, InvalidRequest, Unavailable
from holdfast.executor.permission import AskedOfClient, GrantedByDriver
from holdfast.executor.protocol import ROWS, Answer, OpenSession, RunMaintenance, Scan
from holdfast.executor.registry import LoadedProviders
from holdfast.executor.session import ClientGone, Exchange, Session
from holdfast.rpc.failures import flight_error
from holdfast.rpc.records import decode
from holdfast.rpc.server import RpcServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.executor.permission import Permission
    from holdfast.ids import StateStoreProviderId
    from holdfast.rpc.coordinator_ref import StateStoreCoordinatorRef
    from holdfast.rpc.messages import HostId, Message

log = logging.getLogger(__name__)


class StateHost(RpcServer):
    """Owns the stores of one executor; each open store is one exchange with a client."""

    def __init__(
        self,
        location: str,
        token: str,
        host_id: HostId,
        coordinator: StateStoreCoordinatorRef | None,
        *,
        software: Mapping[str, str],
    ) -> None:
        handlers: dict[type[Message[Any]], Callable[[Any], None]] = {RunMaintenance: self._maintain}
        super().__init__(location, token, handlers, software=software, name=f"state host {host_id.process}")
        self.loaded = LoadedProviders(_nobody if coordinator is None else coordinator.report_snapshot_uploaded)
        self._host_id = host_id
        self._coordinator = coordinator
        self._sessions: dict[str, Session] = {}
        self._exchanges = 0
        self._commits = 0
        self._ending: str | None = None
        self._changed = Condition()

    @property
    def is_idle(self) -> bool:
        """Whether nobody would miss it."""
        return not self._exchanges and self.loaded.is_empty

    def refuse_new(self, reason: str, *, if_idle: bool = False) -> bool:
        """Begin nothing new from now on; says no where that depends on being idle and a client came just now."""
        with self._changed:
            if if_idle and not self.is_idle:
                return False
            self._ending = reason
        return True

    def finish_commits(self, patience: float) -> None:
        """Wait for the commits under way, after ``refuse_new``; gives up on them after ``patience`` seconds."""
        with self._changed:
            log.info("Ends: %s; %d commits under way, %d stores open", self._ending, self._commits, self._exchanges)
            if not self._changed.wait_for(lambda: not self._commits, patience):
                log.error("Ends without waiting longer for %d commits", self._commits)

    def unload_all(self) -> None:
        """Close every provider that is not in use."""
        for provider_id in self.loaded.ids():
            try:
                self.loaded.unload(provider_id)
            except Exception:
                log.exception("Error closing %s", provider_id.store_id.store_checkpoint_location())

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        exchange = Exchange(reader, writer)
        try:
            with self._counted():
                self._serve(decode(OpenSession, descriptor.command), exchange)
        except ClientGone:
            log.info("A client was gone before it had its answer")
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told and the host goes on
            with suppress(ClientGone):
                exchange.refuse(error)
                exchange.drain()

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        scan = decode(Scan, ticket.ticket)
        session = self._sessions.get(scan.session)
        if session is None:
            raise InvalidRequest("the store is not open any more; scan before commit or abort")
        return flight.GeneratorStream(ROWS, _with_our_errors(session.scan(scan)))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A block within which the host is not idle; a host that is ending does not enter it."""
        with self._changed:
            if self._ending is not None:
                raise Unavailable(f"the state host is ending ({self._ending}); another one will take its place")
            self._exchanges += 1
        try:
            yield
        finally:
            with self._changed:
                self._exchanges -= 1

    def _serve(self, opening: OpenSession, exchange: Exchange) -> None:
        identity, permission = self._permission(opening, exchange)
        committed = False
        try:
            with self.loaded.get(
                opening.provider_id,
                _schema(opening.key_schema),
                _schema(opening.value_schema),
                opening.key_index_ordinal,
                opening.version,
                StateStoreConf.parse(opening.conf),
                json.loads(opening.fs_options),
                permission=permission,
                identity=identity,
                start_empty=opening.start_empty,
            ) as store:
                session = Session(store, permission, exchange, self._committing)
                with self._listed(session) as name:
                    exchange.send(Answer(session=name, identity=store.identity))
                    session.serve()
                committed = session.has_committed
        finally:
            if permission is not None and not committed:
                permission.released()

    def _permission(self, opening: OpenSession, exchange: Exchange) -> tuple[str | None, Permission | None]:
        """The identity that the version must have, if that is known, and the permission to publish the next one."""
        if not opening.writable:
            return opening.identity, None
        if opening.ask_client:
            return opening.identity, AskedOfClient(exchange.ask_client)
        if self._coordinator is None or opening.attempt is None:
            raise InvalidRequest(
                f"version {opening.version} of {opening.provider_id.store_id.store_checkpoint_location()} cannot be"
                " opened for writing: neither a driver nor a guard of the client's is there to ask before publishing"
            )
        grant = self._coordinator.open_store(opening.provider_id, opening.version, opening.attempt, self._host_id)
        return grant.identity, GrantedByDriver(self._coordinator, grant)

    def _maintain(self, message: RunMaintenance) -> None:
        with self.loaded.using(message.provider_id) as provider:
            if provider is not None:
                provider.do_maintenance()

    @contextmanager
    def _listed(self, session: Session) -> Iterator[str]:
        name = secrets.token_hex(8)
        self._sessions[name] = session
        try:
            yield name
        finally:
            del self._sessions[name]

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """A block within which the host does not end."""
        with self._changed:
            if self._ending is not None:
                raise Unavailable(f"nothing is committed any more: the state host is ending ({self._ending})")
            self._commits += 1
        try:
            yield
        finally:
            with self._changed:
                self._commits -= 1
                self._changed.notify_all()


def _nobody(provider_id: StateStoreProviderId, version: int) -> None:
    """Be told, where there is no driver."""


def _schema(data: bytes) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"a schema cannot be read: {error}") from error


def _with_our_errors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except HoldfastError as error:
        raise flight_error(error) from error
