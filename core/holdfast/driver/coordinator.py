"""The coordinator: where stores are, who may commit, which batch is complete."""

from __future__ import annotations

import logging
import secrets
import threading
from typing import TYPE_CHECKING, Final

from holdfast.driver.commits import CommitTracker
from holdfast.driver.grants import Grants, spark_is_not_asked
from holdfast.driver.locations import Locations
from holdfast.driver.progress import OperatorProgress, Progress
from holdfast.driver.snapshot_lag import SnapshotLag, SnapshotLagSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from holdfast.driver.grants import CouldCount
    from holdfast.ids import StateStoreProviderId
    from holdfast.rpc.messages import Attempt, Grant, HostId

log = logging.getLogger(__name__)

REPORTS_PER_LEASE: Final = 3
"""A host that missed so many reports is gone."""


class StateStoreCoordinator:
    """Knows all stores of all queries of one Spark context. Any thread may call; it knows no sockets."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        report_interval: float,
        snapshot_lag: SnapshotLagSettings | None = None,
        could_count: CouldCount = spark_is_not_asked,
    ) -> None:
        """``clock`` is monotonic; hosts report every ``report_interval`` seconds; ``could_count`` asks Spark."""
        self._clock = clock
        self._lock = threading.Lock()
        lease = REPORTS_PER_LEASE * report_interval
        self._locations = Locations(lease)
        self._grants = Grants(secrets.token_hex(8), lease, could_count)
        self._commits = CommitTracker()
        self._progress = Progress()
        self._lag = SnapshotLag(snapshot_lag or SnapshotLagSettings())

    # Where stores are

    def report_active_instance(self, provider_id: StateStoreProviderId, host: str, executor_id: str) -> None:
        """A provider was loaded on an executor, and is active there and nowhere else."""
        with self._lock:
            self._locations.claim_for_executor(provider_id, host, executor_id, self._clock())
        log.debug("Reported state store %s is active at %s", provider_id, executor_id)

    def report_instances(
        self, host: HostId, loaded: tuple[StateStoreProviderId, ...]
    ) -> tuple[StateStoreProviderId, ...]:
        """The heartbeat of a host, which keeps its locations and grants; returns what is active elsewhere."""
        with self._lock:
            now = self._clock()
            self._grants.renew(host, now)
            return self._locations.report(host, loaded, now)

    def get_location(self, provider_id: StateStoreProviderId) -> str | None:
        """Where a provider is, as Spark spells preferred locations."""
        with self._lock:
            host = self._locations.find(provider_id, self._clock())
        location = None if host is None else f"executor_{host.host}_{host.executor_id}"
        log.debug("Got location of the state store %s: %s", provider_id, location)
        return location

    def verify_if_instance_active(self, provider_id: StateStoreProviderId, executor_id: str) -> bool:
        """Whether this executor is the one that has the provider."""
        with self._lock:
            host = self._locations.find(provider_id, self._clock())
        active = host is not None and host.executor_id == executor_id
        log.debug("Verified that state store %s is active: %s", provider_id, active)
        return active

    def executor_lost(self, executor_id: str) -> None:
        """Drop what was loaded on an executor that is gone, and void its grants."""
        with self._lock:
            dropped = self._locations.drop_executor(executor_id)
            self._grants.drop_executor(executor_id)
        log.info("Executor %s is lost: dropped the locations of %d state stores", executor_id, len(dropped))

    def deactivate_instances(self, run_id: UUID) -> None:
        """Forget everything of a run that ended, and void its grants."""
        with self._lock:
            dropped = self._locations.drop_run(run_id)
            self._grants.end_run(run_id)
            self._commits.forget_run(run_id)
            self._lag.forget_run(run_id)
        log.debug("Deactivating instances related to run %s: %s", run_id, ", ".join(map(str, dropped)))

    def drop_expired(self) -> None:
        """Drop the hosts that have stopped reporting, with their locations and grants."""
        with self._lock:
            now = self._clock()
            gone = self._locations.drop_expired(now)
            self._grants.drop_void(now)
        for host, stores in gone.items():
            log.warning(
                "Executor %s on %s (process %s) stopped reporting: dropped the locations of %d state stores",
                *(host.executor_id, host.host, host.process or "unknown", stores),
            )

    # Who may commit

    def start_run(self, checkpoint_root: str, run_id: UUID) -> None:
        """A run begins: grants of older runs at this checkpoint are void. Raises Fenced to one that was replaced."""
        with self._lock:
            self._grants.start_run(checkpoint_root, run_id)
        log.info("Run %s begins at %s", run_id, checkpoint_root)

    def open_store(self, provider_id: StateStoreProviderId, version: int, attempt: Attempt, host: HostId) -> Grant:
        """Give an attempt a grant to work on ``version``, or raise Fenced.

        The first open of a batch says that Spark has finished the one before: IncompleteBatch if that is not so.
        """
        with self._lock:
            now = self._clock()
            begins = self._grants.begins_batch(provider_id, version)
            if begins:
                self._validate_before(provider_id, version)
            grant = self._grants.open(provider_id, version, attempt, host, now)
            self._locations.claim(provider_id, host, now)
            if begins:
                self._log_lagging(provider_id.query_run_id, version, now, self_terminating=False)
        return grant

    def _validate_before(self, provider_id: StateStoreProviderId, version: int) -> None:
        run_id = provider_id.query_run_id
        if self._commits.is_tracked(run_id, version - 1):
            committed = self._commits.validate(run_id, version - 1, provider_id.store_id.checkpoint_root)
            log.debug("Run %s: all %d state stores committed in batch %d", run_id, committed, version - 1)
        self._commits.forget_before(run_id, version)

    def may_commit(self, incarnation: str, sequence: int) -> None:
        """Give the holder of a grant permission to publish now, or raise Fenced."""
        with self._lock:
            self._grants.may_commit(incarnation, sequence, self._clock())

    def report_commit(self, incarnation: str, sequence: int, identity: str | None, metrics: Mapping[str, int]) -> None:
        """The holder of a grant published; raises Fenced if another attempt got permission since."""
        with self._lock:
            held = self._grants.report_commit(incarnation, sequence, identity, self._clock())
            run_id, store_id = held.provider_id.query_run_id, held.provider_id.store_id
            self._commits.record(run_id, held.version, store_id)
            self._progress.record(run_id, held.version, store_id, metrics)

    def release(self, incarnation: str, sequence: int) -> None:
        """Take back the grant of a store that was aborted."""
        with self._lock:
            self._grants.release(incarnation, sequence)

    # Which batch is complete

    def start_commit_tracking(self, run_id: UUID, batch_id: int, expected: Mapping[int, Mapping[str, int]]) -> None:
        """A batch begins in which these stores (partitions by store name by operator id) have to commit."""
        with self._lock:
            self._commits.start(run_id, batch_id, expected)

    def validate_commits(self, run_id: UUID, batch_id: int) -> None:
        """Raise IncompleteBatch, with the stores that are missing, unless all of a batch have committed."""
        with self._lock:
            self._commits.validate(run_id, batch_id, self._grants.checkpoint_of(run_id))

    def progress(self, run_id: UUID) -> list[OperatorProgress]:
        """What the operators of a run did in its last batches; it stays when the run has ended."""
        with self._lock:
            return self._progress.of_run(run_id)

    # Whose snapshots fall behind

    def report_snapshot_uploaded(self, provider_id: StateStoreProviderId, version: int) -> None:
        """A snapshot of a store was written."""
        with self._lock:
            self._lag.uploaded(provider_id, version, self._clock())

    def lagging_stores(
        self, run_id: UUID, version: int, *, self_terminating: bool = False
    ) -> list[StateStoreProviderId]:
        """The stores of a run whose snapshots are too far behind ``version``, the worst first."""
        with self._lock:
            now = self._clock()
            active = self._locations.of_run(run_id, now)
            return self._lag.lagging(active, version, now, self_terminating=self_terminating)

    def log_lagging_stores(self, run_id: UUID, version: int, *, self_terminating: bool = False) -> None:
        """Warn of the stores whose snapshots are too far behind; the first open of a batch does it by itself."""
        with self._lock:
            self._log_lagging(run_id, version, self._clock(), self_terminating=self_terminating)

    def _log_lagging(self, run_id: UUID, version: int, now: float, *, self_terminating: bool) -> None:
        active = self._locations.of_run(run_id, now)
        lagging = self._lag.lagging(active, version, now, self_terminating=self_terminating)
        self._lag.log(run_id, lagging, version, now)
