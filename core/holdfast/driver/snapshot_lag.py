"""Stores whose snapshots fall behind: the ones that would take long to load elsewhere."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from holdfast.conf import STATE_STORE_PREFIX
from holdfast.settings import Seconds, Settings, setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from holdfast.ids import StateStoreProviderId

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SnapshotLagSettings(Settings):
    """When a store is called lagging, under Spark's own keys and with Spark's defaults."""

    prefix: ClassVar[str] = STATE_STORE_PREFIX

    coordinator_report_snapshot_upload_lag: bool = setting(True, "Warn of stores whose snapshots fall behind.")
    multiplier_for_min_version_diff_to_log: int = setting(
        5, "A store lags if its snapshot is this many times minDeltasForSnapshot behind, or more.", minimum=1
    )
    multiplier_for_min_time_diff_to_log: int = setting(
        10, "A store lags if its snapshot is older than this many maintenance intervals.", minimum=1
    )
    snapshot_lag_report_interval: Seconds = setting(
        Seconds(300.0), "Time between two lists of lagging stores in the log.", minimum=0
    )
    max_lagging_stores_to_report: int = setting(5, "Lagging stores that such a list names.", minimum=0)
    min_deltas_for_snapshot: int = setting(10, "Deltas in a chain before maintenance writes a snapshot.", minimum=1)
    maintenance_interval: Seconds = setting(
        Seconds(60.0), "Time between two runs of maintenance on an executor.", minimum=0.001
    )

    @classmethod
    def parse(cls, conf: Mapping[str, str]) -> SnapshotLagSettings:
        """Read a Spark configuration; other keys under the prefix are of no interest here."""
        return cls(**{item.field: item.parse(conf[item.key]) for item in cls.declared() if item.key in conf})


@dataclass(frozen=True, slots=True, order=True)
class SnapshotUpload:
    """The newest snapshot of a store."""

    version: int
    at: float


_NEVER = SnapshotUpload(0, float("-inf"))


class SnapshotLag:
    """Remembers uploads and finds what lags. No locks, no clock: the caller says how late it is."""

    def __init__(self, settings: SnapshotLagSettings) -> None:
        self._settings = settings
        self._uploads: dict[StateStoreProviderId, SnapshotUpload] = {}
        self._listed: dict[UUID, float] = {}

    def uploaded(self, provider_id: StateStoreProviderId, version: int, now: float) -> None:
        """A snapshot was written; an older one than is known came late and changes nothing."""
        if version > self._uploads.get(provider_id, SnapshotUpload(-1, now)).version:
            self._uploads[provider_id] = SnapshotUpload(version, now)

    def newest(self, provider_id: StateStoreProviderId) -> int | None:
        """Version of the newest snapshot that was written in this run."""
        upload = self._uploads.get(provider_id)
        return None if upload is None else upload.version

    def lagging(
        self, active: Iterable[StateStoreProviderId], version: int, now: float, *, self_terminating: bool = False
    ) -> list[StateStoreProviderId]:
        """Those of the active stores that are behind ``version`` in versions and in time, the worst first.

        A query that ends by itself may be over before maintenance ever runs: there, time says nothing.
        """
        settings = self._settings
        if not settings.coordinator_report_snapshot_upload_lag:
            return []
        versions = settings.multiplier_for_min_version_diff_to_log * settings.min_deltas_for_snapshot
        seconds = settings.multiplier_for_min_time_diff_to_log * settings.maintenance_interval
        found = []
        for provider_id in active:
            upload = self._uploads.get(provider_id, _NEVER)
            if version - upload.version > versions and (self_terminating or now - upload.at > seconds):
                found.append(provider_id)
        return sorted(found, key=lambda each: self._uploads.get(each, _NEVER))

    def log(self, run_id: UUID, lagging: list[StateStoreProviderId], version: int, now: float) -> None:
        """Warn: how many each time, and which ones now and then."""
        if not lagging:
            return
        log.warning("Run %s: the snapshots of %d state stores fall behind", run_id, len(lagging))
        if now - self._listed.get(run_id, float("-inf")) <= self._settings.snapshot_lag_report_interval:
            return
        self._listed[run_id] = now
        for provider_id in lagging[: self._settings.max_lagging_stores_to_report]:
            upload = self._uploads.get(provider_id)
            newest = (
                "no snapshot in this run"
                if upload is None
                else f"newest snapshot {upload.version}, {version - upload.version} versions and"
                f" {now - upload.at:.0f} s ago"
            )
            place = provider_id.store_id.store_checkpoint_location()
            log.warning("Run %s: %s is at version %d: %s", run_id, place, version, newest)

    def forget_run(self, run_id: UUID) -> None:
        """Forget the stores of a run."""
        for provider_id in [each for each in self._uploads if each.query_run_id == run_id]:
            del self._uploads[provider_id]
        self._listed.pop(run_id, None)
