"""The background work of a host, after the scenarios of Spark's StateStoreSuite."""

from pathlib import Path

import pytest
from cluster import Query, eventually, put, rows

from holdfast.contract.observer import Observer
from holdfast.executor.registry import SnapshotReports

INTERVAL = "spark.sql.streaming.stateStore.maintenanceInterval"
MIN_DELTAS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
RETAINED = "spark.sql.streaming.minBatchesToRetain"


def files(query, partition=0):
    return {path.name for path in Path(query.root, "1000", str(partition)).glob("[0-9]*")}


def snapshots(query):
    """The versions that have one."""
    return sorted(int(name.partition(".")[0]) for name in files(query) if name.endswith(".snapshot"))


class TestOften:
    @pytest.fixture
    def conf(self, conf):
        return {**conf, INTERVAL: "100ms"}

    @pytest.fixture
    def query(self, tmp_path, control):
        return Query(tmp_path / "state", {**control.conf, MIN_DELTAS: "5", RETAINED: "2"})

    def test_maintenance_writes_snapshots_and_cleans_up(self, executor, query, driver):
        client = executor.client()
        for version in range(20):
            query.commit(client, version, {"x": version})
        eventually(lambda: snapshots(query), "a snapshot is written")
        # A snapshot of the newest version alone is not enough: those before it still need the deltas.
        for version in (20, 21, 22):
            query.commit(client, version, {"x": version})
        eventually(lambda: "1.delta" not in files(query), "what nobody can ask for is removed")
        assert query.read(client, 23) == query.stored(23) == rows(x=22)
        lag = driver.coordinator._lag
        eventually(lambda: lag.newest(query.provider_id()) == snapshots(query)[-1], "the driver knows of the newest")
        assert driver.coordinator.get_location(query.provider_id()) == "executor_127.0.0.1_1"

    def test_one_that_fails_is_unloaded_and_the_others_stay(self, executor, query, control):
        client = executor.client()
        for partition in range(3):
            query.commit(client, 0, {"x": partition}, partition=partition)
        control.fail_maintenance(1)
        eventually(lambda: "closed" in control.events(1), "it is unloaded")
        maintained = [control.events(partition).count("maintained") for partition in (0, 2)]
        for partition, before in zip((0, 2), maintained, strict=True):
            eventually(lambda p=partition, b=before: control.events(p).count("maintained") > b + 1, "it goes on")
            assert "closed" not in control.events(partition)
        assert query.commit(client, 1, {"y": 1}, partition=1) == 2
        assert query.stored(2, 1) == rows(x=1, y=1)
        assert "maintenance fails on request" in executor.log()

    def test_one_that_fails_while_a_store_is_open_stays_until_it_is_closed(self, executor, query, control):
        client = executor.client()
        query.commit(client, 0, {"x": 0})
        with query.open(client, 1) as store:
            put(store, {"x": 1})
            control.fail_maintenance(0)
            before = control.events().count("maintained")
            eventually(lambda: control.events().count("maintained") > before + 2, "it has failed more than once")
            assert "closed" not in control.events()
            assert store.commit() == 2
        eventually(lambda: "closed" in control.events(), "it is unloaded")
        assert query.stored(2) == rows(x=1)

    def test_nothing_is_unloaded_while_the_driver_does_not_answer(self, executor, query, driver, control):
        client = executor.client()
        query.commit(client, 0, {"x": 0})
        driver.stop()
        eventually(lambda: "so they are left alone" in executor.log(), "the driver was asked")
        assert "closed" not in control.events()


def test_maintenance_runs_before_an_unload(executor, query, driver, control, tmp_path):
    """Only the driver's hint wakes it: the interval is an hour."""
    query = Query(tmp_path / "state", {**control.conf, MIN_DELTAS: "1"})
    client = executor.client()
    for version in range(5):
        query.commit(client, version, {"x": version})
    query.open(client, 5).abort()
    driver.coordinator.deactivate_instances(query.provider_id().query_run_id)
    eventually(lambda: control.events() == ["loaded", "maintained", "closed"], "the provider is unloaded")
    assert "5.snapshot" in files(query)


def test_what_is_active_elsewhere_is_unloaded(executor, make_executor, driver, query, control):
    query.commit(executor.client(), 0, {"x": 0})
    query.commit(executor.client(), 0, {"x": 0}, partition=1)
    query.commit(make_executor("2", driver).client(), 1, {"x": 1})
    eventually(lambda: "which is not active here any more" in executor.log(), "the first host has unloaded it")
    assert sorted(control.events()) == ["closed", "loaded", "loaded", "maintained"]
    assert "closed" not in control.events(1)
    assert query.commit(executor.client(), 2, {"y": 2}) == 3, "and it can come back"
    assert query.stored(3) == rows(x=1, y=2)


def test_one_run_has_one_instance_and_a_restarted_query_a_new_one(executor, query, control):
    client = executor.client()
    for version in range(3):
        query.commit(client, version, {"x": version})
    assert control.events() == ["loaded"]
    restarted = query.restarted()
    restarted.commit(client, 3, {"x": 3})
    assert control.events() == ["loaded", "loaded"]
    assert restarted.stored(4) == rows(x=3)


def test_observers_of_plug_ins_hear_what_the_driver_is_told():
    heard = []

    class Recorder(Observer):
        def store_committed(self, store_id, version):
            heard.append(("committed", store_id, version))

        def snapshot_written(self, store_id, version, size):
            heard.append(("snapshot", store_id, version, size))

    provider_id = Query("/data/q/state", {}).provider_id()
    reports = SnapshotReports(Recorder(), provider_id, lambda *report: heard.append(report))
    reports.store_committed(provider_id.store_id, 3)
    reports.snapshot_written(provider_id.store_id, 3, 100)
    assert heard == [
        ("committed", provider_id.store_id, 3),
        ("snapshot", provider_id.store_id, 3, 100),
        (provider_id, 3),
    ]
