"""Operators with Spark's sources, sinks and triggers."""

import json
import time
from pathlib import Path

import pytest
from streaming_jobs import Input, run

import holdfast as hf

pytestmark = pytest.mark.spark

FINAL = {"ann": 7, "bob": 30, "cid": 0}


@pytest.fixture
def totals(spark, tmp_path):
    source = Input(spark, tmp_path / "orders", "user string, amount long")
    source.add(("ann", 1), ("bob", 10), ("ann", 2))
    source.add(("bob", 20), ("cid", 100))
    source.add(("ann", 4), ("cid", -100))
    return hf.group_by(source.stream(), "user", partitions=2).agg(total=hf.sum("amount"))


def started(frame, checkpoint, **trigger):
    return frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(**trigger)


def finished(writer):
    query = writer.start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return query


def wait_for(query, batch):
    deadline = time.monotonic() + 120
    while (query.lastProgress or {"batchId": -1})["batchId"] < batch:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline
        query.awaitTermination(0.1)


def state_of(spark, checkpoint):
    frame = spark.read.format("statestore").option("operatorId", 1000).load(str(checkpoint))
    return {row.key[0]: row.value[0] for row in frame.collect()}


def test_parquet_files(spark, totals, tmp_path):
    writer = started(totals, tmp_path / "checkpoint", availableNow=True)
    finished(writer.format("parquet").option("path", str(tmp_path / "out")))
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(tuple(row) for row in rows) == [
        ("ann", 3), ("ann", 7), ("bob", 10), ("bob", 30), ("cid", 0), ("cid", 100),
    ]  # fmt: skip
    assert state_of(spark, tmp_path / "checkpoint") == FINAL


def test_memory_sink(spark, totals, tmp_path):
    finished(started(totals, tmp_path / "checkpoint", availableNow=True).format("memory").queryName("latest_totals"))
    rows = [tuple(row) for row in spark.table("latest_totals").collect()]
    assert dict(rows) == FINAL, "the last one of each"
    assert len(rows) == 6


def test_foreach(spark, totals, tmp_path):
    folder = tmp_path / "seen"
    folder.mkdir()
    seen = str(folder)

    class Writer:
        def open(self, partition_id, epoch_id):
            self.path, self.rows = Path(seen, f"{epoch_id}-{partition_id}"), []
            return True

        def process(self, row):
            self.rows.append(json.dumps(row.asDict()))

        def close(self, error):
            self.path.write_text("\n".join(self.rows))

    finished(started(totals, tmp_path / "checkpoint", availableNow=True).foreach(Writer()))
    last = {}
    for file in sorted(folder.iterdir()):
        last |= {row["user"]: row["total"] for row in map(json.loads, file.read_text().splitlines())}
    assert last == FINAL


def test_noop_sink(spark, totals, tmp_path):
    query = finished(started(totals, tmp_path / "checkpoint", availableNow=True).format("noop"))
    assert state_of(spark, tmp_path / "checkpoint") == FINAL
    assert [each["batchId"] for each in hf.state_operators(query)] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_trigger_once(spark, totals, tmp_path):
    # It takes all there is as one batch.
    query = finished(started(totals, tmp_path / "checkpoint", once=True).format("noop"))
    assert [each["batchId"] for each in hf.state_operators(query)] == [0]
    assert state_of(spark, tmp_path / "checkpoint") == FINAL


def test_trigger_by_processing_time(spark, totals, tmp_path):
    query = started(totals, tmp_path / "checkpoint", processingTime="100 milliseconds").format("noop").start()
    try:
        wait_for(query, 2)
    finally:
        query.stop()
    assert state_of(spark, tmp_path / "checkpoint") == FINAL


@pytest.mark.parametrize(
    ("source", "options"), [("rate", {"rowsPerSecond": 1000}), ("rate-micro-batch", {"rowsPerBatch": 100})]
)
def test_rate_sources(spark, tmp_path, source, options):
    stream = spark.readStream.format(source).options(**options).load().selectExpr("value % 10 as k", "value")
    frame = hf.group_by(stream, "k", partitions=1).agg(n=hf.count(), smallest=hf.min("value"))
    query = started(frame, tmp_path / "checkpoint", processingTime="0 seconds").format("noop").start()
    try:
        wait_for(query, 3)
        read = {each["batchId"]: each["numInputRows"] for each in query.recentProgress}
    finally:
        query.stop()
    frame = (
        spark.read.format("statestore")
        .option("operatorId", 1000)
        .option("batchId", 2)
        .load(str(tmp_path / "checkpoint"))
    )
    state = {row.key.k: tuple(row.value) for row in frame.collect()}
    assert sum(n for n, *_ in state.values()) == read[0] + read[1] + read[2]


def test_text_files_and_a_watermark_downstream(spark, tmp_path):
    """An operator between Spark's own: parsing before it, and a windowed aggregation after it."""
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "0.json").write_text('{"user": "ann", "at": "2024-02-29T12:00:00Z"}\n{"user": "bob", "at": null}\n')
    lines = spark.readStream.schema("user string, at timestamp").json(str(folder))

    def stamped(key, rows, state):
        for row in rows:
            yield key.user, row.at

    events = hf.group_by(lines, "user", partitions=1).apply(stamped, output="user string, at timestamp", state="n int")
    hourly = events.withWatermark("at", "1 hour").groupBy("at").count()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        batches = run(hourly, tmp_path / "checkpoint", mode="update")[1]
    finally:
        spark.conf.unset("spark.sql.shuffle.partitions")
    assert sorted(row[1] for row in batches[0]) == [1, 1]
