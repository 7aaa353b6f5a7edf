"""What Spark wrote, of any age, is what Holdfast reads."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from spark_state import (
    Inbox,
    committed_batches,
    our_log,
    our_rows,
    our_state,
    read_schema_file,
    run,
    spark_conf,
    spark_maintenance,
    spark_reader,
    spark_rows,
    spark_state,
    stores_of,
    writable_copy,
)

pytestmark = pytest.mark.spark

# Checkpoints of old Sparks

OLD = Path(__file__).parents[3] / "shared" / "spark-checkpoints"

NO_SCHEMA_FILE = {
    # Spark 2 and 3.0 wrote none: what their queries kept, by store, in the types that the bytes show.
    "checkpoint-version-2.1.0": {"default": ("value int", "value int, count long")},
    "checkpoint-version-2.3.1-flatMapGroupsWithState-state-format-1": {
        "default": ("value string", "state long, timeoutTimestamp long")
    },
    "checkpoint-version-2.3.1-streaming-aggregate-state-format-1": {"default": ("value int", "value int, count long")},
    "checkpoint-version-2.4.0-streaming-join": {
        "left-keyToNumValues": ("field0 int", "value long"),
        "left-keyWithIndexToValue": ("field0 int, index long", "leftId int, leftTime timestamp"),
        "right-keyToNumValues": ("field0 int", "value long"),
        "right-keyWithIndexToValue": ("field0 int, index long", "rightId int, rightTime timestamp"),
    },
    "checkpoint-version-3.0.0-streaming-statestore-codec": {"default": ("value int", "count long")},
}

WRONG_SCHEMA_FILE = {
    # Spark 3.3 recorded the columns of the input as the value's, but wrote one column that is always null.
    "checkpoint-version-3.3.0-streaming-deduplication": {"default": ("_1 string", "__dummy__ void")},
}

RIGHT_SCHEMA_FILE = {
    "checkpoint-version-3.2.0-session-window-with-repartition",
    "checkpoint-version-3.2.0-streaming-aggregate-with-repartition",
    "checkpoint-version-3.5.1-streaming-join",
}

needs_old = pytest.mark.skipif(not OLD.is_dir(), reason=f"no checkpoints of old Sparks in {OLD}")


def old_schemas(store):
    known = {**NO_SCHEMA_FILE, **WRONG_SCHEMA_FILE}.get(store.checkpoint.name)
    if known is None:
        return read_schema_file(store.schema_file)
    return tuple(map(StructType.fromDDL, known[store.name]))


@pytest.fixture
def old(request, tmp_path):
    return writable_copy(OLD / request.param, tmp_path / request.param)


def every(names):
    return pytest.mark.parametrize("old", sorted(names), indirect=True)


@needs_old
def test_no_old_checkpoint_is_forgotten():
    there = {path.name for path in OLD.iterdir() if path.is_dir()}
    assert there == {*NO_SCHEMA_FILE, *WRONG_SCHEMA_FILE, *RIGHT_SCHEMA_FILE}


@needs_old
@every({*NO_SCHEMA_FILE, *WRONG_SCHEMA_FILE, *RIGHT_SCHEMA_FILE})
def test_old_state_is_what_sparks_provider_loads(spark, old):
    files = pairs = 0
    for store in stores_of(old):
        for version in store.versions:
            ours = our_state(store.folder, version)
            assert ours == spark_state(spark, store, version, *old_schemas(store)), (store, version)
            files, pairs = files + 1, pairs + len(ours)
    assert files == sum(1 for _ in (OLD / old.name / "state").rglob("*.delta"))
    assert pairs > 0


@needs_old
@every(RIGHT_SCHEMA_FILE)
def test_old_rows_are_what_sparks_reader_shows(spark, old):
    compared = 0
    for name in {store.name for store in stores_of(old)}:
        for batch in committed_batches(old):
            theirs, key_schema, value_schema = spark_rows(spark, old, 0, name, batch)
            assert our_rows(old, 0, name, batch + 1, key_schema, value_schema) == theirs, (name, batch)
            compared += theirs.total()
    assert compared > 0


@needs_old
@every({*NO_SCHEMA_FILE} - {"checkpoint-version-2.1.0"})
def test_sparks_reader_needs_a_schema_file(spark, old):
    """Why these are compared with Spark's provider only."""
    with pytest.raises(PySparkException, match="STDS_FAILED_TO_READ_STATE_SCHEMA|requirement failed"):
        spark_reader(spark, old, 0, stores_of(old)[0].name)


@needs_old
@every({"checkpoint-version-2.1.0"})
def test_sparks_reader_needs_a_commit_log(spark, old):
    """Why this is compared with Spark's provider only: there was no commit log before Spark 2.2."""
    with pytest.raises(PySparkException, match="STDS_COMMITTED_BATCH_UNAVAILABLE"):
        spark_reader(spark, old, 0, "default")


@needs_old
@every(WRONG_SCHEMA_FILE)
def test_sparks_reader_believes_a_wrong_schema_file(spark, old):
    """Why this is compared with Spark's provider and the right schema only."""
    with pytest.raises(Exception, match="STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE"):
        spark_reader(spark, old, 0, "default").collect()


# Checkpoints of the installed Spark

EVENTS = "k string, day date, amount decimal(20,2), ratio double, at timestamp"


def event(key, minute, amount=1):
    day = None if key == "b" else "2026-01-02"
    at = f"2026-01-01T00:{minute:02}:00Z"
    return {"k": key, "day": day, "amount": amount, "ratio": amount / 3, "at": at}


def aggregation(spark, events, others):
    return (
        events.stream(spark)
        .groupBy("k", "day")
        .agg(
            f.count("*").alias("n"),
            f.sum("amount").alias("total"),
            f.min("ratio").alias("least"),
            f.max("at").alias("last"),
            f.collect_set("amount").alias("amounts"),
        )
    )


def deduplication(spark, events, others):
    return events.stream(spark).withWatermark("at", "1 minute").dropDuplicates(["k", "at"])


def deduplication_within_watermark(spark, events, others):
    return events.stream(spark).withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["k"])


def join(spark, events, others):
    left = events.stream(spark).withWatermark("at", "1 minute").alias("l")
    right = others.stream(spark).withWatermark("at", "1 minute").alias("r")
    close = f.expr("l.k = r.k and r.at between l.at - interval 2 minutes and l.at + interval 2 minutes")
    return left.join(right, close, "inner")


JOIN_STORES = {f"{side}-{store}" for side in ("left", "right") for store in ("keyToNumValues", "keyWithIndexToValue")}


@pytest.mark.parametrize(
    ("query", "mode", "stores", "removes", "codec"),
    [
        (aggregation, "update", {"default"}, False, "lz4"),
        (aggregation, "update", {"default"}, False, "zstd"),
        (deduplication, "append", {"default"}, True, "lz4"),
        (deduplication_within_watermark, "append", {"default"}, True, "zstd"),
        (join, "append", JOIN_STORES, True, "lz4"),
    ],
)
def test_a_real_query_is_read_as_spark_reads_it(spark, tmp_path, query, mode, stores, removes, codec):
    """Version by version: rows against Spark's reader, bytes against Spark's provider; with a snapshot on the way."""
    checkpoint = tmp_path / "checkpoint"
    events, others = Inbox(tmp_path / "events", EVENTS), Inbox(tmp_path / "others", EVENTS)

    def batches(minutes):
        for minute in minutes:
            events.add(*(event(key, minute, minute + i) for i, key in enumerate("abcde")), event(None, minute))
            others.add(*(event(key, minute + 1) for key in "bcdf"))
        run(query(spark, events, others), checkpoint, mode=mode)

    with spark_conf(
        spark,
        shuffle__partitions="2",
        streaming__stateStore__minDeltasForSnapshot="2",
        streaming__stateStore__compression__codec=codec,
    ):
        batches([1, 2, 9])
        for store in stores_of(checkpoint):
            spark_maintenance(spark, store, *read_schema_file(store.schema_file))
        batches([10, 20])

        assert {store.name for store in stores_of(checkpoint)} == stores
        assert {store.partition for store in stores_of(checkpoint)} == {0, 1}
        compared = dict.fromkeys(stores, 0)
        for name in stores:
            for batch in committed_batches(checkpoint):
                theirs, key_schema, value_schema = spark_rows(spark, checkpoint, 0, name, batch)
                ours = our_rows(checkpoint, 0, name, batch + 1, key_schema, value_schema)
                assert ours == theirs, (name, batch)
                compared[name] += theirs.total()
        assert all(compared.values())

        removed = 0
        for store in stores_of(checkpoint):
            assert store.chain.snapshots
            # Spark's own maintenance adds a later one if the query takes longer than its minute.
            assert store.versions[-1] - min(store.chain.snapshots) >= 2
            for version in store.versions:
                schemas = read_schema_file(store.schema_file)
                assert our_state(store.folder, version) == spark_state(spark, store, version, *schemas)
            for piece in our_log(store.folder).deltas(1, store.versions[-1]):
                removed += piece.values.count(None)
        assert (removed > 0) == removes


def test_rows_with_checksums_are_read_as_spark_reads_them(spark, tmp_path):
    """Spark 4.1 and later write them on request; only the offset log tells of it."""
    if spark.version.startswith("4.0."):
        pytest.skip(f"Spark {spark.version} writes no checksums of rows")
    checkpoint, events = tmp_path / "checkpoint", Inbox(tmp_path / "events", EVENTS)
    events.add(event("a", 1), event("b", 1))
    with spark_conf(spark, shuffle__partitions="1", streaming__stateStore__rowChecksum__enabled="true"):
        run(events.stream(spark).groupBy("k").count(), checkpoint, mode="update")
        (store,) = stores_of(checkpoint)
        theirs = spark_state(spark, store, 1, *read_schema_file(store.schema_file))
        assert len(theirs) == 2
        assert our_state(store.folder, 1, row_checksums=True) == theirs
