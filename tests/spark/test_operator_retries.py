"""An attempt that Spark gave up, or an input that ends too early, leaves nothing in the state."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import retry_scenarios
from order_totals import PARTITION_1, failure_of, orders, state_of, totals, versions, wait_for
from streaming_jobs import outputs

import holdfast as hf

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def retried():
    shown = subprocess.run([sys.executable, retry_scenarios.__file__], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(shown.stdout.splitlines()[-1])


@pytest.mark.parametrize("scenario", [scenario.__name__ for scenario in retry_scenarios.SCENARIOS])
def test_a_retry_starts_from_the_version_before(retried, scenario):
    assert retried[scenario] == {
        "output": [[["u0", 1, 1], ["u1", 1, 10]], [["u0", 2, 3], ["u1", 2, 30]]],
        "state": {"u0": [2, 3], "u1": [2, 30]},
        "versions": [[1, 2], [1, 2]],
    }


def test_speculation_is_refused(retried):
    assert retried["speculation"].startswith("spark.speculation is on: a second copy of a task could replace")
    assert retried["speculation"].endswith("set it to false for this application")


def test_an_error_before_the_operator_commits_nothing(spark, tmp_path):
    source = orders(spark, tmp_path / "orders")
    source.add(("u0", 1), ("u1", 10))
    source.add(("u1", 20), ("u0", 13), ("u1", 30))
    checked = source.stream().selectExpr("user", "if(amount = 13, raise_error('unlucky'), amount) as amount")
    assert "unlucky" in failure_of(totals(checked), tmp_path / "checkpoint")
    assert versions(tmp_path / "checkpoint") == [[1], [1]]
    assert outputs(totals(source.stream()), tmp_path / "checkpoint") == [[("u0", 2, 14), ("u1", 3, 60)]]


def test_a_batch_that_runs_again_has_the_same_time(spark, tmp_path):
    times, mended = str(tmp_path / "times"), str(tmp_path / "mended")

    def clock(key, rows, state):
        with open(times, "a") as file:
            print(state.watermark, state.batch_time, file=file)
        if not Path(mended).exists() and state.watermark is not None:
            raise ValueError("the second batch fails at first")

    source = orders(spark, tmp_path / "orders")
    source.add(("u0", 100_000))
    source.add(("u0", 200_000))
    timed = source.stream().selectExpr("user", "timestamp_seconds(amount) as at").withWatermark("at", "1 second")
    frame = hf.group_by(timed, "user", partitions=1).apply(clock, output="x int", state="n int")
    assert "the second batch fails at first" in failure_of(frame, tmp_path / "checkpoint")
    Path(mended).touch()
    outputs(frame, tmp_path / "checkpoint")
    first, second, again = Path(times).read_text().splitlines()
    assert first != second == again


@pytest.mark.parametrize("end", ["stop", "cancel"])
def test_a_query_that_ends_in_the_middle_of_a_task(spark, tmp_path, end):
    reached, go_on = str(tmp_path / "reached"), str(tmp_path / "go on")

    def pause(key):
        from pyspark import TaskContext

        if TaskContext.get().getLocalProperty("streaming.sql.batchId") == "1" and key == (PARTITION_1,):
            Path(reached).touch()
            while not Path(go_on).exists():
                time.sleep(0.02)

    source = orders(spark, tmp_path / "orders")
    source.add(("u0", 1), ("u1", 10))
    source.add(("u0", 2), ("u1", 20))
    stream = totals(source.stream(), pause=pause)
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_for(Path(reached).exists, "the task")
    if end == "cancel":
        spark.sparkContext.cancelAllJobs()
        wait_for(lambda: not query.isActive, "the end of the query")
        assert "cancel" in str(query.exception())
    query.stop()
    assert versions(tmp_path / "checkpoint") == [[1, 2], [1]], "the first task was done, the second was not"
    Path(go_on).touch()
    assert outputs(stream, tmp_path / "checkpoint") == [[("u0", 2, 3), ("u1", 2, 30)]]
    assert state_of(tmp_path / "checkpoint") == {("u0",): (2, 3), ("u1",): (2, 30)}
