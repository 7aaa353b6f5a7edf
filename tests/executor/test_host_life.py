"""How a host comes to be, and for which reasons it ends."""

import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster import eventually, host_processes, is_alive, put, rows

from holdfast.errors import Unavailable


def assert_nothing_is_left(executor):
    """Nothing but the log."""
    assert [entry.name for entry in executor.place().base.iterdir()] == ["logs"]


def test_20_processes_that_race_to_start_a_host_get_one(executor, query, hosts_folder):
    with executor.children(query, 0, number=20):
        assert host_processes(hosts_folder) == [executor.host_pid()]
    assert executor.log().count("listens on") == 1


class TestTakingOver:
    def test_what_a_killed_host_left(self, executor, query):
        client = executor.client()
        query.commit(client, 0, {"x": 0})
        executor.kill_host()
        left = {entry.name for entry in executor.place().folder.iterdir()}
        assert {"socket", "lock"} <= left
        assert query.commit(client, 1, {"x": 1}) == 2
        assert query.stored(2) == rows(x=1)

    def test_what_hosts_of_other_executors_left_is_swept_away(self, executor, make_executor, driver, query):
        query.commit(executor.client(), 0, {"x": 0})
        executor.kill_host()
        other = make_executor("2", driver)
        living = make_executor("3", driver)
        query.commit(living.client(), 1, {"x": 1})
        assert not executor.place().folder.exists()
        query.commit(other.client(), 2, {"x": 2})
        assert living.place().socket.exists()
        assert is_alive(living.host_pid())


class TestSeveralProcesses:
    @pytest.fixture
    def host_settings(self):
        return {"processes": 2}

    def test_partitions_are_spread_over_them(self, executor, query, hosts_folder):
        client = executor.client()
        for partition in range(4):
            query.commit(client, 0, {"x": partition}, partition=partition)
        assert sorted(host_processes(hosts_folder)) == sorted([executor.host_pid(0), executor.host_pid(1)])
        for process in range(2):
            log = executor.log(process)
            loaded = [n for n in range(4) if f"Loaded ControlledProvider[id=(op=1000,part={n})" in log]
            assert loaded == [process, process + 2]


class TestEnds:
    def test_when_its_executor_is_gone(self, executor, query, hosts_folder):
        query.commit(executor.client(), 0, {"x": 0})
        executor.end()
        eventually(lambda: not host_processes(hosts_folder), "the host has ended")
        assert_nothing_is_left(executor)
        assert f"Ended: its executor (process {executor.info.pid}) is gone" in executor.log()

    def test_when_its_folder_was_cleared_away(self, executor, query, hosts_folder):
        client = executor.client()
        query.commit(client, 0, {"x": 0})
        pid = executor.host_pid()
        shutil.rmtree(executor.place().folder)
        eventually(lambda: not is_alive(pid), "the host has ended")
        assert_nothing_is_left(executor)
        assert "was removed, so that no task can find it" in executor.log()
        assert query.commit(client, 1, {"x": 1}) == 2, "the next task has a host again"

    def test_on_sigterm_after_the_commits_under_way(self, executor, query, control):
        client = executor.client()
        for partition in range(2):
            query.commit(client, 0, {"x": 0}, partition=partition)
        with query.open(client, 1, partition=1) as idle, query.open(client, 1) as store:
            put(store, {"x": 1})
            control.at("commit.before_publish", "wait")
            pid = executor.host_pid()
            with ThreadPoolExecutor(1) as pool:
                committing = pool.submit(store.commit)
                eventually(lambda: control.has_reached("commit.before_publish"), "the commit is under way")
                os.kill(pid, signal.SIGTERM)
                eventually(lambda: "1 commits under way, 2 stores open" in executor.log(), "the host is ending")
                with pytest.raises(Unavailable, match="nothing is committed any more: the state host is ending"):
                    idle.commit()
                assert is_alive(pid)
                control.go_on()
                assert committing.result(60) == 2
        eventually(lambda: not is_alive(pid), "the host has ended")
        assert query.stored(2) == rows(x=1)
        assert_nothing_is_left(executor)
        assert "Ended: it was told to (SIGTERM)" in executor.log()
        assert query.commit(client, 2, {"y": 2}) == 3, "the next task has a host again"

    def test_while_it_ends_another_one_waits_for_its_place(self, executor, query, control, hosts_folder):
        client = executor.client()
        for partition in range(2):
            query.commit(client, 0, {"x": 0}, partition=partition)
        control.at("commit.before_publish", "wait")
        store = query.open(client, 1, partition=0)
        put(store, {"x": 1})
        with ThreadPoolExecutor(2) as pool:
            committing = pool.submit(store.commit)
            eventually(lambda: control.has_reached("commit.before_publish"), "the commit is under way")
            ending = executor.host_pid()
            os.kill(ending, signal.SIGTERM)
            eventually(lambda: not executor.place().socket.exists(), "nobody new is let in")
            reading = pool.submit(query.read, executor.client(), 1, 1)
            control.go_on()
            assert committing.result(60) == 2
            assert reading.result(60) == rows(x=0)
        assert host_processes(hosts_folder) == [executor.host_pid()] != [ending]


class TestIdle:
    @pytest.fixture
    def host_settings(self):
        return {"idle_timeout": "500ms"}

    def test_it_ends_when_it_has_nothing_to_do_and_not_before(self, executor, query, driver, control):
        client = executor.client()
        store = query.open(client, 0)
        pid = executor.host_pid()
        driver.coordinator.deactivate_instances(query.provider_id().query_run_id)
        # In use, though nobody will need it again: it is maintained, and not unloaded.
        eventually(lambda: control.events().count("maintained") > 5, "some reports went by")
        assert "closed" not in control.events()
        assert is_alive(pid)
        store.abort()
        eventually(lambda: not is_alive(pid), "the host has ended")
        assert control.events()[-1] == "closed"
        assert_nothing_is_left(executor)
        assert "Ended: it had nothing to do for 0.5 s" in executor.log()
        assert query.restarted().commit(client, 0, {"x": 0}) == 1, "the next task has a host again"
