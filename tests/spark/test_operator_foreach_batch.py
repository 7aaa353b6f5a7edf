"""What foreachBatch does with a batch decides which partitions run, and how often."""

import re
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from order_totals import orders, state_of, totals, versions
from pyspark import inheritable_thread_target

import holdfast as hf
from holdfast.cli.main import main as holdfast_command

pytestmark = pytest.mark.spark


@pytest.fixture
def source(spark, tmp_path):
    source = orders(spark, tmp_path / "orders")
    for amount in (1, 10, 100):
        source.add(("u0", amount), ("u1", 2 * amount))
    return source


def run(frame, checkpoint, write):
    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def failure(frame, checkpoint, write):
    with pytest.raises(Exception, match=r"(?s).*") as caught:  # which type it is differs between versions of PySpark
        run(frame, checkpoint, write)
    return str(caught.value)


COMPLETE = {("u0",): (3, 111), ("u1",): (3, 222)}


def test_several_actions_see_the_same_and_load_nothing_again(source, tmp_path):
    seen = []

    def write(batch, batch_id):
        seen.append([sorted(tuple(row) for row in batch.collect()) for _ in range(3)])
        assert batch.count() == 2

    query = run(totals(source.stream()), tmp_path / "checkpoint", write)
    assert [len({str(rows) for rows in batch}) for batch in seen] == [1, 1, 1]
    assert seen[-1][0] == [("u0", 3, 111), ("u1", 3, 222)]
    assert state_of(tmp_path / "checkpoint") == COMPLETE
    loads = [batch["customMetrics"]["loadedMapCacheMissCount"] for batch in hf.state_operators(query)]
    assert len(loads) == 3
    assert loads[0] == loads[-1], "each partition was loaded once, when the query started"


def take_back(message):
    """Do what an error says."""
    command = re.search(r"`holdfast (rollback .*?)`", message)[1]
    done = CliRunner().invoke(holdfast_command, [*shlex.split(command), "--yes"])
    assert done.exit_code == 0, done.output


def collect(batch, batch_id):
    batch.collect()


@pytest.mark.parametrize("reads", ["nothing", "one partition"])
def test_a_batch_that_was_not_read_stops_the_next_one_and_can_be_run_again(source, tmp_path, reads):
    def write(batch, batch_id):
        if batch_id != 1:
            batch.collect()
        elif reads == "one partition":
            assert len(batch.take(1)) == 1

    message = failure(totals(source.stream()), tmp_path / "checkpoint", write)
    missing = 2 if reads == "nothing" else 1
    assert f"Spark finished batch 1, but {missing} of its 2 stores did not commit" in message
    assert "operator 1000, store default, partition 1" in message
    assert "Most likely an action in foreachBatch did not read every partition (limit, take, show" in message
    take_back(message)
    assert versions(tmp_path / "checkpoint") == [[1], [1]]
    run(totals(source.stream()), tmp_path / "checkpoint", collect)
    assert state_of(tmp_path / "checkpoint") == COMPLETE


def test_a_batch_that_was_not_read_in_an_earlier_run_says_how_to_run_it_again(spark, tmp_path):
    source, checkpoint = orders(spark, tmp_path / "orders"), tmp_path / "checkpoint"
    source.add(("u0", 1), ("u1", 2))
    run(totals(source.stream()), checkpoint, collect)
    source.add(("u0", 10), ("u1", 20))
    run(totals(source.stream()), checkpoint, lambda batch, batch_id: batch.take(1))
    source.add(("u0", 100), ("u1", 200))
    message = failure(totals(source.stream()), checkpoint, collect)
    assert "Batch 1 did not leave the state of operator" in message
    assert "read only a part of its output (limit(), show(), take())" in message
    take_back(message)
    run(totals(source.stream()), checkpoint, collect)
    assert state_of(checkpoint) == COMPLETE


def test_a_limit_beside_an_action_that_reads_all_does_no_harm(source, tmp_path):
    def write(batch, batch_id):
        batch.limit(1).collect()
        batch.collect()
        batch.show(1)

    run(totals(source.stream()), tmp_path / "checkpoint", write)
    assert state_of(tmp_path / "checkpoint") == COMPLETE


def test_a_thread_of_its_own_must_take_the_batch_along(spark, source, tmp_path):
    def in_a_pool(batch, batch_id):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(batch.collect).result()

    message = failure(totals(source.stream()), tmp_path / "checkpoint", in_a_pool)
    assert "this task knows of no micro-batch" in message
    assert "pyspark.inheritable_thread_target(session)" in message

    def with_the_batch(batch, batch_id):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(inheritable_thread_target(spark)(batch.collect)).result()

    run(totals(source.stream()), tmp_path / "checkpoint", with_the_batch)
    assert state_of(tmp_path / "checkpoint") == COMPLETE
