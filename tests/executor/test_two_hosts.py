"""Two executors work on one store: what stays is the version of the attempt that the driver gave permission to."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster import eventually, host_processes, put, rows

from holdfast.errors import Fenced


@pytest.fixture
def other(make_executor, driver):
    return make_executor("2", driver)


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_each_executor_has_a_host_of_its_own(executor, other, query, hosts_folder):
    query.commit(executor.client(), 0, {"a": 1})
    query.commit(other.client(), 1, {"b": 2})
    assert sorted(host_processes(hosts_folder)) == sorted([executor.host_pid(), other.host_pid()])


def test_only_the_one_with_permission_publishes(executor, other, query, driver):
    here, there = executor.client(), other.client()
    query.commit(here, 0, {"x": 0})
    with query.open(here, 1) as slow, query.open(there, 1) as fast:
        put(slow, {"x": "slow", "y": 1})
        put(fast, {"x": "fast"})
        assert fast.commit() == 2
        with pytest.raises(Fenced, match="attempt 3 got permission to commit") as refusal:
            slow.commit()
    assert str(executor.place().log) in str(refusal.value)
    assert not slow.has_committed
    assert query.stored(2) == rows(x="fast")
    # What the slow one's host has in memory is of the version before, and it knows.
    assert query.read(here, 2) == rows(x="fast")
    assert query.commit(here, 2, {"z": 3}) == 3
    assert query.read(there, 3) == query.stored(3) == rows(x="fast", z=3)
    assert driver.coordinator.get_location(query.provider_id()) == "executor_127.0.0.1_1"


def test_a_host_that_committed_what_did_not_stay_loads_what_did(executor, other, query):
    here, there = executor.client(), other.client()
    query.commit(here, 0, {"x": 0})
    query.commit(here, 1, {"x": "first", "only in the first": 1})
    query.commit(there, 1, {"x": "second"})  # the stage ran again
    assert query.commit(here, 2, {"y": 2}) == 3
    assert query.stored(3) == rows(x="second", y=2)


def test_a_zombie_that_opens_late_is_refused(executor, other, query):
    query.commit(executor.client(), 0, {"x": 0})
    query.commit(other.client(), 1, {"x": 1})
    with pytest.raises(Fenced, match="which was launched after it"):
        query.open(executor.client(), 1, attempt=1)


def test_a_task_of_an_older_run_is_fenced(executor, other, query):
    here, there = executor.client(), other.client()
    query.commit(here, 0, {"x": 0})
    with query.open(here, 1) as old:
        put(old, {"x": "old"})
        restarted = query.restarted()
        assert restarted.commit(there, 1, {"x": "new"}) == 2
        with pytest.raises(Fenced):
            old.commit()
    assert query.stored(2) == rows(x="new")


@pytest.mark.parametrize("point", ["commit.before_publish", "publish.allowed"])
@pytest.mark.parametrize("newer_versions", [1, 3])
def test_one_that_was_stopped_before_its_publish_changes_nothing_when_it_wakes(
    executor, other, query, control, point, newer_versions
):
    here, there = executor.client(), other.client()
    query.commit(here, 0, {"x": 0})
    stopped = executor.host_pid()
    late = query.open(here, 1)
    put(late, {"x": "late"})
    control.at(point, "wait")
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(late.commit)
        try:
            eventually(lambda: control.has_reached(point), "the commit is where it is to be stopped")
            os.kill(stopped, signal.SIGSTOP)
            eventually(lambda: is_stopped(stopped), "the host is stopped")
            control.go_on()
            for version in range(1, 1 + newer_versions):
                assert query.commit(there, version, {"x": version}) == version + 1
        finally:
            os.kill(stopped, signal.SIGCONT)
        with pytest.raises(Fenced):
            committing.result(60)
    assert not late.has_committed
    for version in range(1, 1 + newer_versions):
        assert query.stored(version + 1) == query.read(here, version + 1) == rows(x=version)
    assert query.commit(here, 1 + newer_versions, {"y": 1}) == 2 + newer_versions
    assert query.stored(2 + newer_versions) == rows(x=newer_versions, y=1)
