"""A checkpoint on the driver's own disk is no place for the state of executors on other machines."""

import other_machine
import pytest
from cluster_script import outcome_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    return folder, outcome_of(other_machine.__file__, folder)


def test_a_local_checkpoint_is_refused(outcome):
    folder, shown = outcome
    said = f"the checkpoint file:{folder}/c is on this machine's disk, but executors run on {other_machine.NAME}; "
    assert said + "set checkpointLocation to a filesystem that all share" in shown["refused"]
    assert "spark.holdfast.operator.sharedFilesystem=true" in shown["refused"]


def test_a_filesystem_that_is_said_to_be_shared_is_used(outcome):
    _, shown = outcome
    assert shown["shared"] == [[["u0", 1, 1], ["u1", 1, 10]]]
    assert shown["state"] == [["u0", 1, 1], ["u1", 1, 10]]
