"""What everyone but the coordinator itself holds of it."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from holdfast.rpc.client import RpcClient
from holdfast.rpc.forking import use_grpc
from holdfast.rpc.messages import (
    DeactivateInstances,
    ExecutorLost,
    GetLocation,
    MayCommit,
    OpenStore,
    Release,
    ReportActiveInstance,
    ReportCommit,
    ReportInstances,
    ReportSnapshotUploaded,
    StartCommitTracking,
    StartRun,
    StopCoordinator,
    ValidateCommits,
    VerifyIfInstanceActive,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from uuid import UUID

    from holdfast.ids import StateStoreProviderId
    from holdfast.rpc.address import Address
    from holdfast.rpc.messages import Attempt, Grant, Hello, HostId, Message, ReplyT

log = logging.getLogger(__name__)

_REGISTERED = "Registered StateStoreCoordinator endpoint"
_RETRIEVED = "Retrieved existing StateStoreCoordinator endpoint"


class StateStoreCoordinatorRef:
    """Speaks to the coordinator: one method per message."""

    def __init__(self, client: RpcClient) -> None:
        self._client = client

    @classmethod
    def for_driver(cls, owner: Hashable, start: Callable[[], Address], hello: Hello) -> StateStoreCoordinatorRef:
        """The ref to the coordinator of ``owner`` (a SparkContext's id); the first call starts the coordinator."""
        use_grpc()
        key = (os.getpid(), "driver", owner)
        with _lock:
            ref = _refs.get(key)
            if ref is not None:
                log.debug(_RETRIEVED)
                return ref
            ref = _refs[key] = cls(RpcClient(start(), hello=hello))
            log.info(_REGISTERED)
            return ref

    @classmethod
    def for_executor(cls, address: Address, hello: Hello) -> StateStoreCoordinatorRef:
        """The ref that this process has to the coordinator at ``address``."""
        use_grpc()
        key = (os.getpid(), "executor", address)
        with _lock:
            ref = _refs.get(key)
            if ref is None:
                ref = _refs[key] = cls(RpcClient(address, hello=hello))
            log.debug(_RETRIEVED)
            return ref

    def ask(self, message: Message[ReplyT]) -> ReplyT:
        """Send a message that the endpoint answers beyond the coordinator's own."""
        return self._client.ask(message)

    @property
    def address(self) -> Address:
        """Where the coordinator is."""
        return self._client.address

    def report_active_instance(self, provider_id: StateStoreProviderId, host: str, executor_id: str) -> None:
        """Tell, without waiting, that a provider was loaded on an executor."""
        self._client.send(ReportActiveInstance(provider_id, host, executor_id))

    def get_location(self, provider_id: StateStoreProviderId) -> str | None:
        """Where the provider is loaded, as ``executor_<host>_<executor id>``."""
        return self._client.ask(GetLocation(provider_id))

    def verify_if_instance_active(self, provider_id: StateStoreProviderId, executor_id: str) -> bool:
        """Whether this executor is the one that has the provider."""
        return self._client.ask(VerifyIfInstanceActive(provider_id, executor_id))

    def deactivate_instances(self, run_id: UUID) -> bool:
        """Forget all providers of a run that ended."""
        return self._client.ask(DeactivateInstances(run_id))

    def stop(self) -> bool:
        """End the coordinator, and this connection to it."""
        stopped = self._client.ask(StopCoordinator())
        self.close()
        return stopped

    def close(self) -> None:
        """End this connection only; the next ``for_driver`` or ``for_executor`` makes a new one."""
        with _lock:
            for key in [key for key, ref in _refs.items() if ref is self]:
                del _refs[key]
        self._client.close()

    def report_instances(
        self, host: HostId, loaded: tuple[StateStoreProviderId, ...]
    ) -> tuple[StateStoreProviderId, ...]:
        """Tell all that a host has loaded, and learn which of it is active elsewhere."""
        return self._client.ask(ReportInstances(host, loaded))

    def executor_lost(self, executor_id: str) -> None:
        """Drop what was loaded on an executor that is gone."""
        self._client.ask(ExecutorLost(executor_id))

    def start_run(self, checkpoint_root: str, run_id: UUID) -> None:
        """Let a run be the one that may commit at this checkpoint."""
        self._client.ask(StartRun(checkpoint_root, run_id))

    def open_store(self, provider_id: StateStoreProviderId, version: int, attempt: Attempt, host: HostId) -> Grant:
        """Open a version for writing; ``Fenced`` when the attempt comes too late to."""
        return self._client.ask(OpenStore(provider_id, version, attempt, host))

    def may_commit(self, incarnation: str, sequence: int) -> None:
        """Return when the holder of the grant may publish now; ``Fenced`` when it may not."""
        self._client.ask(MayCommit(incarnation, sequence))

    def report_commit(self, incarnation: str, sequence: int, identity: str | None, metrics: Mapping[str, int]) -> None:
        """Tell that the holder of the grant published."""
        self._client.ask(ReportCommit(incarnation, sequence, identity, dict(metrics)))

    def release(self, incarnation: str, sequence: int) -> None:
        """Give a grant back without having published."""
        self._client.ask(Release(incarnation, sequence))

    def start_commit_tracking(self, run_id: UUID, batch_id: int, expected: Mapping[int, Mapping[str, int]]) -> None:
        """Tell which stores have to commit in a batch: partitions by store name by operator id."""
        stores = {operator_id: dict(partitions) for operator_id, partitions in expected.items()}
        self._client.ask(StartCommitTracking(run_id, batch_id, stores))

    def validate_commits(self, run_id: UUID, batch_id: int) -> None:
        """Raise an error that lists the stores of a batch that did not commit."""
        self._client.ask(ValidateCommits(run_id, batch_id))

    def report_snapshot_uploaded(self, provider_id: StateStoreProviderId, version: int) -> None:
        """Tell, without waiting, that a snapshot was written."""
        self._client.send(ReportSnapshotUploaded(provider_id, version))


_lock = threading.Lock()
# By process, because a forked child must not use what its parent made.
_refs: dict[tuple[int, str, Hashable], StateStoreCoordinatorRef] = {}
