"""A driver that is killed, wherever it is in a batch, loses nothing and counts nothing twice."""

import os
import signal
import subprocess
import sys

import killed_driver
import pytest
from order_totals import read_orders, state_of, totals, versions, wait_for
from streaming_jobs import outputs

pytestmark = pytest.mark.spark

OUTPUT = [
    [("u0", 1, 1), ("u1", 1, 10)],
    [("u0", 2, 3), ("u1", 2, 30), ("u2", 1, 200)],
    [("u0", 3, 6), ("u1", 3, 60)],
]

COMMITTED = {
    "before the first commit": [[], []],
    "before any commit": [[1], [1]],
    "after some commits": [[1, 2], [1]],
    "after all commits": [[1, 2], [1, 2]],
    "after Spark's commit log": [[1, 2], [1, 2]],
}
"""Versions of each partition where the driver was killed."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a driver that was killed when each of its queries was at its point."""
    folder = tmp_path_factory.mktemp("killed")
    with open(folder / "log", "wb") as log:
        driver = subprocess.Popen(
            [sys.executable, killed_driver.__file__, str(folder)], stdout=log, stderr=log, start_new_session=True
        )
    try:
        for point, committed in COMMITTED.items():
            wait_for(lambda point=point: killed_driver.reached(folder / point).exists(), point)
            checkpoint = folder / point / "checkpoint"
            wait_for(lambda checkpoint=checkpoint, c=committed: versions(checkpoint) == c, f"{point}: {committed}")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    for point in COMMITTED:
        (folder / point / "go on").touch()
    return folder


@pytest.mark.parametrize("point", COMMITTED)
def test_restart_after_a_kill(spark, killed, point):
    folder = killed / point
    # Spark wrote down what the batch was to read, so it is the same input again.
    assert (
        outputs(totals(read_orders(spark, folder / "orders")), folder / "checkpoint")
        == OUTPUT[killed_driver.HANGS_IN_BATCH[point] :]
    )
    assert versions(folder / "checkpoint") == [[1, 2, 3], [1, 2, 3]]
    assert state_of(folder / "checkpoint") == {("u0",): (3, 6), ("u1",): (3, 60), ("u2",): (1, 200)}
