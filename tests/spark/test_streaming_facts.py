"""What tasks and the driver learn from a real streaming query."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.errors import CorruptState, EnvironmentNotReady, InvalidRequest, MissingVersion

pytestmark = pytest.mark.spark


def source(spark):
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def recording(folder):
    """A function for mapInArrow that writes down what the task knows, or why it knows nothing."""
    folder = str(folder)

    def function(batches):
        from dataclasses import asdict

        from pyspark import TaskContext

        from holdfast.errors import InvalidRequest
        from holdfast.spark.executor_identity import ExecutorIdentity
        from holdfast.spark.task import TaskInfo

        for _ in batches:
            pass
        try:
            found = {**asdict(TaskInfo.current()), "executor": asdict(ExecutorIdentity.of_this_worker())}
        except InvalidRequest as refused:
            found = {"refused": str(refused)}
        Path(folder, str(TaskContext.get().taskAttemptId())).write_text(json.dumps(found, default=str))
        return iter(())

    return function


def recorded(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir(), key=lambda path: int(path.name))]


def run_batches(writer, checkpoint, batches):
    """Start a query, wait until it has run some batches, and return it, still running."""
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    deadline = time.monotonic() + 60
    while (query.lastProgress or {"batchId": -1})["batchId"] < batches - 1:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline
        query.awaitTermination(0.1)
    return query


@pytest.fixture
def seen(tmp_path):
    folder = tmp_path / "seen"
    folder.mkdir()
    return folder


def test_a_task_and_the_driver_agree(spark, tmp_path, seen):
    from holdfast.spark.queries import RunningQuery

    frame = source(spark).withWatermark("timestamp", "1 second").select("value")
    writer = frame.mapInArrow(recording(seen), "x int").writeStream.format("noop")
    query = run_batches(writer, tmp_path / "check point", 3)
    try:
        running = RunningQuery.find(spark, UUID(query.id))
        assert (str(running.query_id), str(running.run_id)) == (query.id, query.runId)
        assert running.checkpoint_root == f"file:{tmp_path}/check point"
        tasks = recorded(seen)
        assert [task["batch_id"] for task in tasks[:3]] == [0, 1, 2]
        assert {(task["query_id"], task["run_id"]) for task in tasks} == {(query.id, query.runId)}
        assert {(task["partition_id"], task["attempt_number"]) for task in tasks} == {(0, 0)}
        attempts = [task["task_attempt_id"] for task in tasks]
        assert attempts == sorted(set(attempts))
        times = [running.batch_time(spark, batch) for batch in range(3)]
        assert times[0].watermark_ms is None
        progress = {entry["batchId"]: entry for entry in query.recentProgress}
        assert times[2].batch_time_ms >= times[1].batch_time_ms > 1_600_000_000_000
        shown = progress[2]["eventTime"]["watermark"]
        assert shown == time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime((times[2].watermark_ms or 0) / 1000))
    finally:
        query.stop()
    with pytest.raises(InvalidRequest, match=f"no query {query.id} runs"):
        RunningQuery.find(spark, UUID(query.id))
    offsets = tmp_path / "check point" / "offsets"
    (offsets / "1").write_text("v1\n{}\n")
    with pytest.raises(CorruptState, match=r"cannot read .*offsets/1: .*ChecksumException"):
        running.batch_time(spark, 1)
    (offsets / ".1.crc").unlink()
    with pytest.raises(CorruptState, match=r"offsets/1 is not an entry .*batchWatermarkMs"):
        running.batch_time(spark, 1)
    (offsets / "1").unlink()
    with pytest.raises(MissingVersion, match=r"cannot read .*offsets/1: .*FileNotFoundException"):
        running.batch_time(spark, 1)


def test_the_executor_of_local_mode(spark, seen):
    spark.range(1).mapInArrow(identifying(seen), "x int").count()
    (found,) = recorded(seen)
    assert found["executor_id"] == "driver"
    assert found["key"].startswith("blockmgr-")
    assert "java" in Path(f"/proc/{found['pid']}/cmdline").read_text().split("\0")[0]
    assert int(Path(f"/proc/{found['pid']}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()


def identifying(folder):
    folder = str(folder)

    def function(batches):
        from dataclasses import asdict

        from holdfast.spark.executor_identity import ExecutorIdentity

        Path(folder, "0").write_text(json.dumps(asdict(ExecutorIdentity.of_this_worker())))
        yield from list(batches)[:0]

    return function


def test_no_executor_here():
    from holdfast.spark.executor_identity import ExecutorIdentity

    with pytest.raises(EnvironmentNotReady, match="no blockmgr-… folder in SPARK_LOCAL_DIRS"):
        ExecutorIdentity.of_this_worker({})


def test_tasks_outside_a_streaming_query(spark, seen):
    from holdfast.spark.task import TaskInfo

    with pytest.raises(InvalidRequest, match="this is not a Spark task"):
        TaskInfo.current()
    spark.range(1).mapInArrow(recording(seen), "x int").count()
    assert "start it with writeStream" in recorded(seen)[0]["refused"]


@pytest.mark.parametrize("way", ["itself", "thread pool", "inheritable thread", "job group of its own"])
def test_foreach_batch(spark, tmp_path, seen, way):
    from pyspark import inheritable_thread_target

    # Made before the query starts: threads made inside it would inherit what it knows by chance.
    pool = ThreadPoolExecutor(1)
    pool.submit(threading.get_ident).result()

    def act(frame, _):
        def action():
            frame.mapInArrow(recording(seen), "x int").count()

        if way == "thread pool":
            pool.submit(action).result()
        elif way == "inheritable thread":
            pool.submit(inheritable_thread_target(frame.sparkSession)(action)).result()
        else:
            if way == "job group of its own":
                frame.sparkSession.sparkContext.setJobGroup("mine", "mine")
            action()

    with pool:
        query = run_batches(source(spark).select("value").writeStream.foreachBatch(act), tmp_path / "c", 1)
        query.stop()
    first = recorded(seen)[0]
    if way == "thread pool":
        assert "pyspark.inheritable_thread_target" in first["refused"]
    elif way == "job group of its own":
        assert "run id of this task is 'mine'" in first["refused"]
    else:
        assert (first["batch_id"], first["query_id"], first["run_id"]) == (0, query.id, query.runId)


def test_unsuitable_queries(spark):
    from holdfast.spark.queries import refuse_unsuitable

    stream = source(spark).selectExpr(
        "value",
        "collate('a', 'UTF8_LCASE') as text",
        "array(named_struct('f', collate('a', 'UTF8_LCASE'))) as nested",
        "map(1, 2) as entries",
    )
    refuse_unsuitable(stream, ["value"])
    for key, said in [
        ("text", "'text' has the collation UTF8_LCASE"),
        ("nested", "'nested' has the collation UTF8_LCASE"),
        ("entries", r"array_sort\(map_entries\(entries\)\)"),
        ("nobody", "no column 'nobody' to group by; there are value, text"),
    ]:
        with pytest.raises(InvalidRequest, match=said):
            refuse_unsuitable(stream, [key])
    with pytest.raises(InvalidRequest, match="not a streaming one.*readStream"):
        refuse_unsuitable(spark.range(1), ["id"])
    with pytest.raises(InvalidRequest, match="a DataFrame is needed; got list"):
        refuse_unsuitable([], ["id"])


def test_asynchronous_progress_is_refused(spark, tmp_path):
    from holdfast.spark.queries import RunningQuery

    writer = source(spark).select("value").writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")
    query = run_batches(writer, tmp_path / "c", 1)
    try:
        with pytest.raises(InvalidRequest, match="remove the option asyncProgressTrackingEnabled"):
            RunningQuery.find(spark, UUID(query.id))
    finally:
        query.stop()


def test_this_machine():
    from holdfast.spark.queries import is_this_machine

    assert is_this_machine("127.0.0.1")
    assert is_this_machine("localhost")
    assert not is_this_machine("203.0.113.9")
    assert not is_this_machine("no-such-machine.invalid")
