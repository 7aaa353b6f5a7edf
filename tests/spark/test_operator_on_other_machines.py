"""A checkpoint on the driver's own disk is no place for the state of executors on other machines."""

import json
import os
import subprocess
import sys
from pathlib import Path

import other_machine
import pyspark
import pytest

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    done = subprocess.run(
        [sys.executable, other_machine.__file__, str(folder)],
        env={**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_a_local_checkpoint_is_refused(outcome):
    folder, shown = outcome
    said = f"the checkpoint file:{folder}/c is on this machine's disk, but executors run on {other_machine.NAME}; "
    assert said + "set checkpointLocation to a filesystem that all share" in shown["refused"]
    assert "spark.holdfast.operator.sharedFilesystem=true" in shown["refused"]


def test_a_filesystem_that_is_said_to_be_shared_is_used(outcome):
    _, shown = outcome
    assert shown["shared"] == [[["u0", 1, 1], ["u1", 1, 10]]]
    assert shown["state"] == [["u0", 1, 1], ["u1", 1, 10]]
