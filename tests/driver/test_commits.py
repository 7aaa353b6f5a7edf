"""A batch that Spark finished but whose stores did not all commit."""

import pytest
from click.testing import CliRunner
from sample_ids import HOST_A, NEXT_RUN, ROOT, RUN, attempt, provider

from holdfast.cli.main import main
from holdfast.conformance import Backend
from holdfast.errors import IncompleteBatch, InvalidRequest


def commit(coordinator, version, *stores):
    for store in stores:
        number = version * 100 + store.store_id.partition_id
        grant = coordinator.open_store(store, version, attempt(number), HOST_A)
        coordinator.may_commit(grant.incarnation, grant.sequence)
        coordinator.report_commit(grant.incarnation, grant.sequence, None, {})


def test_a_complete_batch_is_valid(coordinator):
    coordinator.start_commit_tracking(RUN, 3, {1000: {"default": 2}, 1001: {"left": 1}})
    commit(coordinator, 3, provider(0), provider(1), provider(0, operator=1001, name="left"))
    coordinator.validate_commits(RUN, 3)
    coordinator.open_store(provider(), 4, attempt(500), HOST_A)


def test_the_error_lists_what_is_missing_and_how_to_repair_it(coordinator):
    coordinator.start_run(ROOT, RUN)
    coordinator.start_commit_tracking(RUN, 3, {1000: {"default": 3}, 1001: {"left": 1, "right": 1}})
    commit(coordinator, 3, provider(1), provider(0, operator=1001, name="left"))
    with pytest.raises(IncompleteBatch) as raised:
        coordinator.validate_commits(RUN, 3)
    message = str(raised.value)
    assert "batch 3, but 3 of its 5 stores did not commit" in message
    assert (
        "operator 1000, store default, partition 0; operator 1000, store default, partition 2;"
        " operator 1001, store right, partition 0." in message
    )
    assert "foreachBatch" in message
    assert "`holdfast rollback /data/q --to 2`" in message


def test_the_next_batch_does_not_begin(coordinator):
    coordinator.start_commit_tracking(RUN, 3, {1000: {"default": 2}})
    commit(coordinator, 3, provider(0))
    for number in (1, 2):
        with pytest.raises(IncompleteBatch, match="partition 1"):
            coordinator.open_store(provider(0), 4, attempt(1000 + number), HOST_A)
    commit(coordinator, 3, provider(1))
    coordinator.open_store(provider(0), 4, attempt(2000), HOST_A)


def test_a_batch_that_opened_nothing_is_noticed(coordinator):
    coordinator.start_run(ROOT, RUN)
    coordinator.start_commit_tracking(RUN, 3, {1000: {"default": 1}})
    with pytest.raises(IncompleteBatch, match="1 of its 1 stores"):
        coordinator.open_store(provider(0), 4, attempt(1), HOST_A)


def test_a_new_run_is_not_held_up_by_the_old_one(coordinator):
    coordinator.start_commit_tracking(RUN, 3, {1000: {"default": 2}})
    commit(coordinator, 3, provider(0))
    coordinator.open_store(provider(0, run=NEXT_RUN), 3, attempt(1000), HOST_A)
    coordinator.open_store(provider(0, run=NEXT_RUN), 4, attempt(1001), HOST_A)


def test_an_aborted_store_did_not_commit(coordinator):
    coordinator.start_commit_tracking(RUN, 3, {1000: {"default": 1}})
    grant = coordinator.open_store(provider(), 3, attempt(1), HOST_A)
    coordinator.may_commit(grant.incarnation, grant.sequence)
    coordinator.release(grant.incarnation, grant.sequence)
    with pytest.raises(IncompleteBatch):
        coordinator.validate_commits(RUN, 3)


def test_the_first_batch_has_none_to_go_back_to(coordinator):
    coordinator.start_run(ROOT, RUN)
    coordinator.start_commit_tracking(RUN, 0, {1000: {"default": 1}})
    with pytest.raises(IncompleteBatch, match="start the query anew, without /data/q") as raised:
        coordinator.validate_commits(RUN, 0)
    assert "rollback" not in str(raised.value)


def test_a_long_list_is_cut(coordinator):
    coordinator.start_commit_tracking(RUN, 1, {1000: {"default": 200}})
    with pytest.raises(IncompleteBatch, match="partition 19; and 180 more. ") as raised:
        coordinator.validate_commits(RUN, 1)
    assert "partition 20" not in str(raised.value)


def test_tracking_may_be_announced_again_but_not_otherwise(coordinator):
    coordinator.start_commit_tracking(RUN, 1, {1000: {"default": 2}})
    coordinator.start_commit_tracking(RUN, 1, {1000: {"default": 2}})
    with pytest.raises(InvalidRequest, match="tracked already"):
        coordinator.start_commit_tracking(RUN, 1, {1000: {"default": 3}})


def test_what_is_not_tracked_cannot_be_validated(coordinator):
    with pytest.raises(InvalidRequest, match="not tracked"):
        coordinator.validate_commits(RUN, 1)
    coordinator.start_commit_tracking(RUN, 1, {1000: {"default": 2}})
    coordinator.deactivate_instances(RUN)
    with pytest.raises(InvalidRequest, match="not tracked"):
        coordinator.validate_commits(RUN, 1)


def test_the_command_of_the_message_repairs_a_real_checkpoint(coordinator, tmp_path):
    """Batch 2 is in Spark's log of commits, but partition 1 has no version 3."""
    backend = Backend("files", str(tmp_path / "state"))
    batches = {0: 3, 1: 2}
    for partition, versions in batches.items():
        opened = backend.open(partition_id=partition)
        for version in range(versions):
            opened.get_store(version).commit()
        opened.close()
    for name, numbers in (("commits", range(3)), ("offsets", range(4))):
        (tmp_path / name).mkdir()
        for number in numbers:
            (tmp_path / name / str(number)).write_text("v1\n{}\n")
    root = str(tmp_path / "state")
    coordinator.start_run(root, RUN)
    coordinator.start_commit_tracking(RUN, 2, {backend.open().store_id.operator_id: {"default": 2}})
    with pytest.raises(IncompleteBatch) as raised:
        coordinator.validate_commits(RUN, 2)

    command = str(raised.value).split("`")[1].removeprefix("holdfast ").split()
    result = CliRunner().invoke(main, [*command, "--yes"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert sorted(each.name for each in (tmp_path / "commits").iterdir()) == ["0", "1"]
    assert sorted(each.name for each in (tmp_path / "offsets").iterdir()) == ["0", "1", "2"]
    for partition in batches:
        assert backend.open(partition_id=partition).get_store(2).commit() == 3
