"""Leases count only the time in which the driver could hear its hosts."""

import os
import signal
import subprocess
import sys
import textwrap
from time import sleep

import pytest
from sample_ids import HOST_A, provider

from holdfast.driver.awake_clock import AwakeClock
from holdfast.driver.coordinator import StateStoreCoordinator
from holdfast.errors import Fenced
from holdfast.rpc.messages import Attempt

INTERVAL = 5.0


@pytest.fixture
def time():
    class Time:
        now = 1000.0

        def __call__(self):
            return self.now

    return Time()


@pytest.fixture
def coordinator(time):
    return StateStoreCoordinator(AwakeClock(time, longest_gap=2 * INTERVAL), report_interval=INTERVAL)


def test_a_pause_of_the_driver_ends_no_lease(coordinator, time):
    grant = coordinator.open_store(provider(), 0, Attempt(1, 0, 1), HOST_A)
    time.now += 3600
    coordinator.may_commit(grant.incarnation, grant.sequence)
    assert coordinator.get_location(provider()) is not None


def test_a_host_that_is_silent_loses_its_lease(coordinator, time):
    grant = coordinator.open_store(provider(), 0, Attempt(1, 0, 1), HOST_A)
    for _ in range(4):
        time.now += INTERVAL
        coordinator.drop_expired()
    with pytest.raises(Fenced):
        coordinator.may_commit(grant.incarnation, grant.sequence)
    assert coordinator.get_location(provider()) is None


def test_a_pause_is_not_counted_twice(time):
    clock = AwakeClock(time, longest_gap=10)
    time.now += 25
    assert clock() == 1010
    assert clock() == 1010
    time.now += 9
    assert clock() == 1019


def test_a_stopped_process():
    """SIGSTOP is a real pause; the monotonic clock goes on meanwhile."""
    script = """
        from time import monotonic, sleep
        from holdfast.driver.awake_clock import AwakeClock
        clock = AwakeClock(monotonic, longest_gap=0.5)
        really, awake = monotonic(), clock()
        print("ready", flush=True)
        input()
        print(monotonic() - really >= 2, clock() - awake < monotonic() - really - 1)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        sleep(2.1)
        os.kill(process.pid, signal.SIGCONT)
        assert process.communicate("go\n", timeout=60)[0] == "True True\n"
