"""The coordinator's endpoint: a server that maps messages to its methods, and a thread that keeps it tidy."""

from __future__ import annotations

import logging
import secrets
import threading
from typing import TYPE_CHECKING, Any

from holdfast.rpc import messages
from holdfast.rpc.address import Address
from holdfast.rpc.server import RpcServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.driver.coordinator import StateStoreCoordinator
    from holdfast.rpc.tls import Tls

log = logging.getLogger(__name__)


class CoordinatorEndpoint:
    """Lets other processes reach a coordinator over TCP, with a token that it makes itself."""

    def __init__(
        self,
        coordinator: StateStoreCoordinator,
        *,
        host: str,
        software: Mapping[str, str],
        tidy_interval: float,
        bind: str = "0.0.0.0",  # noqa: S104 - executors on other machines have to reach it; the token keeps others out
        port: int = 0,
        tls: Tls | None = None,
        tls_root: str | None = None,
        handlers: Mapping[type[messages.Message[Any]], Callable[[Any], Any]] = {},
    ) -> None:
        """``host`` is the driver's name as executors reach it; ``tls_root`` is what they are to trust.

        ``handlers`` are for messages beyond the coordinator's own.
        """
        self._coordinator = coordinator
        self._host = host
        self._scheme = "grpc" if tls is None else "grpc+tls"
        self._tls_root = tls_root
        self._token = secrets.token_urlsafe(32)
        self._tidy_interval = tidy_interval
        self._stopped = threading.Event()
        self._tidying = threading.Thread(target=self._tidy, name="holdfast-coordinator-tidy", daemon=True)
        self._server = RpcServer(
            f"{self._scheme}://{bind}:{port}",
            self._token,
            {**self._handlers(), **handlers},
            software=software,
            name="the coordinator on the driver",
            tls=tls,
        )

    def start(self) -> Address:
        """Listen, and return where."""
        self._server.start()
        self._tidying.start()
        return self.address

    @property
    def address(self) -> Address:
        """Where it listens, and the token that lets in; there is none before ``start``."""
        return Address(f"{self._scheme}://{self._host}:{self._server.port}", self._token, self._tls_root)

    def stop(self, *, wait: bool = True) -> None:
        """Refuse new calls, and end when those under way have ended; a second time changes nothing."""
        if not self._stopped.is_set():
            self._stopped.set()
            log.info("StateStoreCoordinator stopped")
        self._server.stop(wait=wait)
        if wait and self._tidying.is_alive():
            self._tidying.join()

    def _tidy(self) -> None:
        while not self._stopped.wait(self._tidy_interval):
            try:
                self._coordinator.drop_expired()
            except Exception:  # the thread has to outlive whatever goes wrong once
                log.exception("Dropping expired leases failed; it is tried again in %g s", self._tidy_interval)

    def _stop_from_handler(self, _: messages.StopCoordinator) -> bool:
        self.stop(wait=False)
        return True

    def _deactivate(self, message: messages.DeactivateInstances) -> bool:
        self._coordinator.deactivate_instances(message.run_id)
        return True

    def _handlers(self) -> dict[type[messages.Message[Any]], Callable[[Any], Any]]:
        to = self._coordinator
        return {
            messages.ReportActiveInstance: lambda m: to.report_active_instance(m.provider_id, m.host, m.executor_id),
            messages.ReportInstances: lambda m: to.report_instances(m.host, m.loaded),
            messages.GetLocation: lambda m: to.get_location(m.provider_id),
            messages.VerifyIfInstanceActive: lambda m: to.verify_if_instance_active(m.provider_id, m.executor_id),
            messages.DeactivateInstances: self._deactivate,
            messages.ExecutorLost: lambda m: to.executor_lost(m.executor_id),
            messages.StartRun: lambda m: to.start_run(m.checkpoint_root, m.run_id),
            messages.OpenStore: lambda m: to.open_store(m.provider_id, m.version, m.attempt, m.host),
            messages.MayCommit: lambda m: to.may_commit(m.incarnation, m.sequence),
            messages.ReportCommit: lambda m: to.report_commit(m.incarnation, m.sequence, m.identity, m.metrics),
            messages.Release: lambda m: to.release(m.incarnation, m.sequence),
            messages.StartCommitTracking: lambda m: to.start_commit_tracking(m.run_id, m.batch_id, m.expected),
            messages.ValidateCommits: lambda m: to.validate_commits(m.run_id, m.batch_id),
            messages.ReportSnapshotUploaded: lambda m: to.report_snapshot_uploaded(m.provider_id, m.version),
            messages.StopCoordinator: self._stop_from_handler,
        }
