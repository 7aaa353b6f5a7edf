import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # where hosts find the providers of these tests, too

from cluster import Driver, Executor, Query, eventually, host_conf, host_processes
from controlled import Control


@pytest.fixture
def hosts_folder():
    """Where hosts live; short, because the path of a socket must be."""
    folder = tempfile.mkdtemp(prefix="hf-")
    yield folder
    for pid in host_processes(folder):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not host_processes(folder), "all hosts are gone")
    shutil.rmtree(folder)


@pytest.fixture
def host_settings():
    """Settings of the hosts of one test, beyond the short intervals of all."""
    return {}


@pytest.fixture
def conf(hosts_folder, host_settings):
    return {
        "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
        **host_conf(
            folder=hosts_folder,
            heartbeat_interval="200ms",
            start_timeout="60s",
            request_timeout="60s",
            log_level="DEBUG",
            **host_settings,
        ),
    }


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.stop()


@pytest.fixture
def make_executor(conf, hosts_folder):
    made = []

    def make(executor_id, driver):
        made.append(Executor(executor_id, driver, conf))
        return made[-1]

    yield make
    for executor in made:
        executor.close()


@pytest.fixture
def executor(make_executor, driver):
    return make_executor("1", driver)


@pytest.fixture
def control(tmp_path):
    return Control(tmp_path / "control")


@pytest.fixture
def query(tmp_path, control):
    return Query(tmp_path / "checkpoint" / "state", control.conf)
