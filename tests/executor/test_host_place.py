"""The folder of hosts: whom it belongs to, and the logs in it."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cluster import eventually, is_alive

from holdfast.errors import EnvironmentNotReady, InvalidSetting
from holdfast.executor.client import StateHostClient
from holdfast.executor.launch import ExecutorInfo
from holdfast.executor.place import HostPlace

DAY = 24 * 3600


class TestRefused:
    def test_a_folder_that_others_can_enter(self, executor, query, hosts_folder):
        Path(hosts_folder).chmod(0o750)
        with pytest.raises(EnvironmentNotReady, match=f"{hosts_folder} .* only this user can use"):
            query.open(executor.client(), 0)

    def test_also_when_somebody_listens_in_it(self, executor, query, hosts_folder):
        query.commit(executor.client(), 0, {"x": 0})
        executor.place().folder.chmod(0o777)
        with pytest.raises(EnvironmentNotReady, match="only this user can use"):
            query.open(executor.client(), 1)

    def test_a_link(self, executor, query, hosts_folder, tmp_path):
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        executor.place().folder.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(EnvironmentNotReady, match="only this user can use"):
            query.open(executor.client(), 0)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_a_folder_of_somebody_else(self, executor, query, hosts_folder):
        os.chown(hosts_folder, 65534, 65534)
        with pytest.raises(EnvironmentNotReady, match="only this user can use"):
            query.open(executor.client(), 0)

    def test_a_path_that_is_too_long_for_a_socket(self, executor, query, hosts_folder):
        client = executor.client(folder=f"{hosts_folder}/{'x' * 100}")
        with pytest.raises(EnvironmentNotReady, match="set spark.holdfast.host.folder to a shorter one"):
            query.open(client, 0)

    def test_settings_that_do_not_exist(self, executor):
        with pytest.raises(InvalidSetting, match="did you mean spark.holdfast.host.logLevel"):
            StateHostClient(executor.info, {"spark.holdfast.host.logLevl": "INFO"})
        with pytest.raises(InvalidSetting, match="DEBUG, INFO, WARNING, ERROR"):
            executor.client(log_level="LOUD")


def test_each_process_executor_driver_and_application_has_its_own_place(driver):
    base = ExecutorInfo("a", executor_id="1", host_name="h", pid=1, token="t", coordinator=None)

    def info(**other):
        return replace(base, **other)

    places = [
        info().place(0, None),
        info().place(1, None),
        info(identity="b").place(0, None),
        info(token="u").place(0, None),
        info(coordinator=driver.address).place(0, None),
    ]
    assert len({place.name for place in places}) == len(places)
    assert info(executor_id="2", pid=2).place(0, None) == places[0], "its identity alone says which executor it is"


class TestLogs:
    @pytest.fixture
    def host_settings(self):
        return {"log_size": "2k", "log_files": 2}

    def test_they_rotate_and_the_newest_has_the_last_words(self, executor, query):
        client = executor.client()
        for version in range(30):
            query.commit(client, version, {"x": version})
        logs = sorted(path.name for path in executor.place().log.parent.iterdir())
        name = executor.place().log.name
        assert logs == [name, f"{name}.1", f"{name}.2"]
        pid = executor.host_pid()
        os.kill(pid, signal.SIGABRT)
        eventually(lambda: not is_alive(pid), "the host is gone")
        assert "Fatal Python error: Aborted" in executor.log()


def test_logs_of_long_ago_are_swept_away(executor, query, hosts_folder):
    place = executor.place()
    place.prepare()
    now = time.time()  # noqa: TID251 - what the age of files is counted from
    ages = {"old.log": 8 * DAY, "old.log.1": 30 * DAY, "young.log": 6 * DAY}
    for name, age in ages.items():
        log = place.log.with_name(name)
        log.touch()
        os.utime(log, (now - age, now - age))
    query.commit(executor.client(), 0, {"x": 0})
    assert {path.name for path in place.log.parent.iterdir()} == {"young.log", place.log.name}


def test_only_places_of_hosts_are_swept_away(hosts_folder):
    place = HostPlace.of("executor", 0, hosts_folder)
    place.prepare()
    place.log.touch()
    foreign = Path(hosts_folder, "precious")
    foreign.mkdir(mode=0o700)
    (foreign / "start").touch()
    abandoned, starting = (HostPlace.of(identity, 0, hosts_folder) for identity in ("a", "b"))
    with abandoned.starting(1):  # whoever did this was killed before a host came up
        pass
    with starting.starting(1):
        place.sweep()
        assert starting.folder.exists()
    assert (foreign / "start").exists()
    assert place.folder.exists()
    assert not abandoned.folder.exists()
