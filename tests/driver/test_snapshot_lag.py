"""Stores whose snapshots fall behind, by Spark's conditions: scenarios of StateStoreCoordinatorSuite."""

import logging

import pytest
from sample_ids import HOST_A, HOST_B, NEXT_RUN, RUN, attempt, provider

from holdfast.driver.coordinator import StateStoreCoordinator
from holdfast.driver.snapshot_lag import SnapshotLag, SnapshotLagSettings
from holdfast.errors import InvalidSetting

BEHIND = 5 * 10
"""Versions that a snapshot may be behind: multiplierForMinVersionDiffToLog times minDeltasForSnapshot."""
LATE = 10 * 60.0
"""Seconds that it may be: multiplierForMinTimeDiffToLog times maintenanceInterval."""


def load(coordinator, *stores):
    coordinator.report_instances(HOST_A, stores)


def test_defaults_are_sparks():
    settings = SnapshotLagSettings.parse({})
    assert settings.coordinator_report_snapshot_upload_lag
    assert settings.multiplier_for_min_version_diff_to_log == 5
    assert settings.multiplier_for_min_time_diff_to_log == 10
    assert settings.snapshot_lag_report_interval == 300
    assert settings.max_lagging_stores_to_report == 5


def test_settings_have_sparks_keys():
    prefix = "spark.sql.streaming.stateStore."
    parsed = SnapshotLagSettings.parse(
        {
            prefix + "coordinatorReportSnapshotUploadLag": "false",
            prefix + "multiplierForMinVersionDiffToLog": "2",
            prefix + "multiplierForMinTimeDiffToLog": "3",
            prefix + "snapshotLagReportInterval": "0",
            prefix + "maxLaggingStoresToReport": "4",
            prefix + "minDeltasForSnapshot": "5",
            prefix + "maintenanceInterval": "6s",
            prefix + "rocksdb.compactOnCommit": "true",
        }
    )
    assert parsed == SnapshotLagSettings(
        coordinator_report_snapshot_upload_lag=False,
        multiplier_for_min_version_diff_to_log=2,
        multiplier_for_min_time_diff_to_log=3,
        snapshot_lag_report_interval=0.0,
        max_lagging_stores_to_report=4,
        min_deltas_for_snapshot=5,
        maintenance_interval=6.0,
    )
    with pytest.raises(InvalidSetting, match="at least 1"):
        SnapshotLagSettings.parse({prefix + "multiplierForMinVersionDiffToLog": "0"})


@pytest.mark.parametrize(
    ("versions", "seconds", "self_terminating", "lags"),
    [
        (BEHIND, LATE + 1, False, False),
        (BEHIND + 1, LATE, False, False),
        (BEHIND + 1, LATE + 1, False, True),
        (BEHIND + 1, 0, True, True),
        (BEHIND, LATE + 1, True, False),
    ],
)
def test_a_store_lags_if_it_is_behind_in_versions_and_in_time(
    coordinator, clock, versions, seconds, self_terminating, lags
):
    coordinator.report_snapshot_uploaded(provider(), 7)
    clock.now += seconds
    load(coordinator, provider())
    found = coordinator.lagging_stores(RUN, 7 + versions, self_terminating=self_terminating)
    assert found == ([provider()] if lags else [])


def test_a_store_without_any_snapshot_lags_by_versions_alone(coordinator):
    load(coordinator, provider())
    assert coordinator.lagging_stores(RUN, BEHIND) == []
    assert coordinator.lagging_stores(RUN, BEHIND + 1) == [provider()]


def test_only_stores_that_are_loaded_count_and_only_of_that_run(coordinator):
    other = provider(0, NEXT_RUN, root="/y/state")
    load(coordinator, provider(0), other)
    assert coordinator.lagging_stores(RUN, 100) == [provider(0)]
    assert coordinator.lagging_stores(NEXT_RUN, 100) == [other]
    coordinator.deactivate_instances(RUN)
    assert coordinator.lagging_stores(RUN, 100) == []


def test_every_store_of_a_join_lags_for_itself(coordinator):
    stores = [provider(0, name=f"{side}-{kind}") for side in ("left", "right") for kind in ("keys", "values")]
    load(coordinator, *stores)
    coordinator.report_snapshot_uploaded(stores[2], 100)
    assert set(coordinator.lagging_stores(RUN, 100)) == {stores[0], stores[1], stores[3]}


def test_an_older_upload_that_comes_late_changes_nothing(coordinator):
    load(coordinator, provider())
    coordinator.report_snapshot_uploaded(provider(), 60)
    coordinator.report_snapshot_uploaded(provider(), 1)
    assert coordinator.lagging_stores(RUN, 100, self_terminating=True) == []


def test_uploads_of_a_run_that_ended_are_forgotten(clock):
    lag = SnapshotLag(SnapshotLagSettings())
    lag.uploaded(provider(), 100, clock())
    assert lag.lagging([provider()], 100, clock(), self_terminating=False) == []
    lag.forget_run(RUN)
    assert lag.lagging([provider()], 100, clock(), self_terminating=False) == [provider()]


def test_it_can_be_switched_off(clock):
    off = SnapshotLagSettings(coordinator_report_snapshot_upload_lag=False)
    coordinator = StateStoreCoordinator(clock, report_interval=5.0, snapshot_lag=off)
    load(coordinator, provider())
    assert coordinator.lagging_stores(RUN, 1000) == []


def warnings(caplog):
    found = [record.getMessage().removeprefix(f"Run {RUN}: ") for record in caplog.records]
    caplog.clear()
    return found


def test_the_log_counts_always_and_names_the_worst_now_and_then(coordinator, clock, caplog):
    coordinator.report_snapshot_uploaded(provider(1), 20)
    coordinator.report_snapshot_uploaded(provider(0), 10)
    clock.now += LATE + 1
    load(coordinator, *map(provider, range(8)))
    coordinator.log_lagging_stores(RUN, 100)
    counted, *named = warnings(caplog)
    assert counted == "the snapshots of 8 state stores fall behind"
    assert len(named) == 5
    assert all("at version 100: no snapshot in this run" in line for line in named)

    for partition in range(2, 8):
        coordinator.report_snapshot_uploaded(provider(partition), 99)
    clock.now += 300
    load(coordinator, *map(provider, range(8)))
    coordinator.log_lagging_stores(RUN, 101)
    assert warnings(caplog) == ["the snapshots of 2 state stores fall behind"]

    clock.now += 1
    coordinator.log_lagging_stores(RUN, 101)
    assert warnings(caplog) == [
        "the snapshots of 2 state stores fall behind",
        "/data/q/state/1000/0 is at version 101: newest snapshot 10, 91 versions and 902 s ago",
        "/data/q/state/1000/1 is at version 101: newest snapshot 20, 81 versions and 902 s ago",
    ]


def test_the_first_open_of_a_batch_looks(coordinator, caplog):
    load(coordinator, provider(0), provider(1))
    with caplog.at_level(logging.WARNING):
        coordinator.open_store(provider(0), BEHIND + 1, attempt(1), HOST_B)
        assert len(warnings(caplog)) == 3
        coordinator.open_store(provider(1), BEHIND + 1, attempt(2), HOST_B)
        assert warnings(caplog) == []
