"""What Holdfast wrote is what Spark reads, and goes on from.

What Spark's reader needs beside the state files (found by leaving out one after the other):

- ``commits/<batch>`` and ``offsets/<batch>``, which every query has, stateless ones too;
- ``state/<operator>/0[/<store>]/_metadata/schema``.

It does not need ``state/<operator>/_metadata/metadata``, with which the query could not be restarted. That file or not,
Spark 4.2 and 4.3 show only the partitions below the offset log's ``spark.sql.shuffle.partitions``, and of named stores
only those of Spark's own joins; Spark 4.0 shows all.
"""

import json
import shutil
from collections import Counter
from contextlib import contextmanager
from functools import cache

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType
from spark_state import (
    Inbox,
    Store,
    committed_batches,
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
    write_schema_file,
)

from holdfast.checkpoint.framing import compress, decompress
from holdfast.checkpoint.records import decode_records, encode_records
from holdfast.checkpoint.storage import Folder
from holdfast.conformance import Backend
from holdfast.rows import RowCodec

pytestmark = pytest.mark.spark

OPERATOR = 1000
PARTITIONS = 2
KEY = "name string, part int"
VALUE = "n long, text string, many array<int>"
BATCHES = 6
SNAPSHOT = 4
"""The version that is snapshotted: with the deltas after it, a chain that needs both."""

both_codecs = pytest.mark.parametrize("codec", ["lz4", "zstd"])


@contextmanager
def conf(spark, codec, partitions=PARTITIONS):
    with spark_conf(
        spark,
        shuffle__partitions=str(partitions),
        streaming__stateStore__minDeltasForSnapshot="2",
        streaming__stateStore__compression__codec=codec,
    ):
        yield


# A query that is stateless to Spark, with our state beside it


def changes(partition, batch, name):
    """What a batch does to the state: one key stays as it is, one is overwritten, one comes and goes."""
    if batch == 0:
        yield ("always", partition), (partition, name, [1, None, 3])
    yield ("overwritten", partition), (batch, None if batch % 2 else "x" * batch * 1000, [batch] * batch)
    yield (f"new in {batch}", partition), (batch, "ü", None)
    if batch:
        yield (f"new in {batch - 1}", partition), None


def expected_state(partition, version, name):
    state = {}
    for batch in range(version):
        state.update(changes(partition, batch, name))
    return {key: value for key, value in state.items() if value is not None}


def write_state(checkpoint, codec, name):
    """Six versions of two partitions by the ``files`` provider, and a snapshot of the fourth."""
    keys, values = RowCodec(KEY), RowCodec(VALUE)
    backend = Backend("files", f"{checkpoint}/state").with_conf(
        stateStore__minDeltasForSnapshot="2", stateStore__compression__codec=codec
    )
    for partition in range(PARTITIONS):
        provider = backend.open(
            operator_id=OPERATOR, partition_id=partition, store_name=name, key_schema=KEY, value_schema=VALUE
        )
        for batch in range(BATCHES):
            store = provider.get_store(batch)
            for key, value in changes(partition, batch, name):
                if value is None:
                    store.remove(keys.encode_one(key))
                else:
                    store.put(keys.encode_one(key), values.encode_one(value))
            if batch == SNAPSHOT:  # opened, so the version before is final
                provider.do_maintenance()
            store.commit()
        provider.close()
    written = Store(checkpoint, OPERATOR, 0, name)
    assert written.chain.snapshots == {SNAPSHOT}
    if not written.schema_file.exists():
        write_schema_file(written.schema_file, *map(StructType.fromDDL, (KEY, VALUE)))


def stateless_query(spark, folder, codec, partitions=PARTITIONS):
    """A checkpoint with as many batches as our state has; returns it and what restarts the query."""
    inbox, checkpoint = Inbox(folder / "inbox", "n long"), folder / "checkpoint"
    for number in range(BATCHES):
        inbox.add({"n": number})

    def start():
        with conf(spark, codec, partitions):
            run(inbox.stream(spark), checkpoint)

    start()
    assert committed_batches(checkpoint) == list(range(BATCHES))
    return checkpoint, inbox, start


@pytest.fixture(scope="module")
def checkpoint_with(spark, tmp_path_factory):
    """The checkpoint of a query with our state beside it, for reading only."""

    @cache
    def make(codec):
        checkpoint, _, _ = stateless_query(spark, tmp_path_factory.mktemp(codec), codec)
        for name in ("default", "second"):
            write_state(checkpoint, codec, name)
        return checkpoint

    return make


def add_sparks_metadata(checkpoint):
    """What Spark writes for its own operators, and Holdfast does not."""
    stores = [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": PARTITIONS}]
    metadata = {"operatorInfo": {"operatorId": OPERATOR, "operatorName": "holdfast"}, "stateStoreInfo": stores}
    folder = checkpoint / "state" / str(OPERATOR) / "_metadata"
    folder.mkdir()
    (folder / "metadata").write_text("v1\n" + json.dumps(metadata))


def shows_all(spark):
    """Whether Spark's reader looks at what there is, and not at what it would have written itself."""
    return spark.version.startswith("4.0.")


def rows_in(frame, *more):
    rows = frame.select("key", "value", *more).collect()
    values = ((tuple(row.key), row.value and tuple(row.value), *row[2:]) for row in rows)
    return sorted(values, key=repr)


def expected_rows(version, name, partitions=range(PARTITIONS)):
    rows = [(*pair, part) for part in partitions for pair in expected_state(part, version, name).items()]
    return sorted(rows, key=repr)


@both_codecs
def test_sparks_reader_shows_our_state(spark, checkpoint_with, codec):
    for batch in range(BATCHES):
        frame = spark_reader(spark, checkpoint_with(codec), OPERATOR, "default", batchId=batch)
        expected = expected_rows(batch + 1, "default")
        assert rows_in(frame, "partition_id") == expected
        assert len(expected) == 3 * PARTITIONS


def test_sparks_reader_shows_a_named_store_only_in_the_place_of_a_default_one(spark, checkpoint_with, tmp_path):
    """It takes any other name for a state variable of transformWithState."""
    copy = writable_copy(checkpoint_with("lz4"), tmp_path / "copy")
    if shows_all(spark):
        frame = spark_reader(spark, copy, OPERATOR, "second")
        assert rows_in(frame, "partition_id") == expected_rows(BATCHES, "second")
    else:
        with pytest.raises(PySparkException, match="requirement failed"):
            spark_reader(spark, copy, OPERATOR, "second")
    for partition in range(PARTITIONS):
        folder = Store(copy, OPERATOR, partition, "second").folder
        shutil.copytree(folder, Store(copy, OPERATOR + 1, partition, "default").folder)
    frame = spark_reader(spark, copy, OPERATOR + 1, "default")
    assert rows_in(frame, "partition_id") == expected_rows(BATCHES, "second")


@pytest.mark.parametrize("known", [False, True])
def test_sparks_reader_leaves_out_partitions_that_the_offset_log_does_not_know(spark, tmp_path, known):
    """Without a word. More of them than there are do no harm."""
    checkpoint, _, _ = stateless_query(spark, tmp_path, "lz4", partitions=PARTITIONS + 1 if known else 1)
    write_state(checkpoint, "lz4", "default")
    frame = spark_reader(spark, checkpoint, OPERATOR, "default")
    shown = range(PARTITIONS if known or shows_all(spark) else 1)
    assert rows_in(frame, "partition_id") == expected_rows(BATCHES, "default", shown)
    add_sparks_metadata(checkpoint)
    frame = spark_reader(spark, checkpoint, OPERATOR, "default")
    assert rows_in(frame, "partition_id") == expected_rows(BATCHES, "default", shown)


@both_codecs
def test_sparks_provider_loads_our_state(spark, checkpoint_with, codec):
    compared = 0
    keys, values = RowCodec(KEY), RowCodec(VALUE)
    with conf(spark, codec):
        for store in stores_of(checkpoint_with(codec)):
            for version in store.versions:
                loaded = spark_state(spark, store, version, *read_schema_file(store.schema_file))
                assert loaded == our_state(store.folder, version)
                rows = {keys.decode_one(key): values.decode_one(value) for key, value in loaded.items()}
                assert rows == expected_state(store.partition, version, store.name)
                compared += len(rows)
    assert compared == 3 * BATCHES * PARTITIONS * 2


def test_spark_goes_through_our_snapshot_and_our_deltas(spark, checkpoint_with):
    """Its reader of one snapshot and what follows, and its reader of changes."""
    start = {"snapshotStartBatchId": SNAPSHOT - 1, "snapshotPartitionId": 1}
    frame = spark_reader(spark, checkpoint_with("lz4"), OPERATOR, "default", **start)
    assert rows_in(frame, "partition_id") == expected_rows(BATCHES, "default", [1])

    every = {"readChangeFeed": "true", "changeStartBatchId": 0}
    feed = spark_reader(spark, checkpoint_with("lz4"), OPERATOR, "default", **every)
    expected = [
        (*change, batch, partition)
        for batch in range(BATCHES)
        for partition in range(PARTITIONS)
        for change in changes(partition, batch, "default")
    ]
    assert rows_in(feed, "batch_id", "partition_id") == sorted(expected, key=repr)


def test_state_that_begins_in_the_middle_of_a_query(spark, tmp_path):
    checkpoint, _, _ = stateless_query(spark, tmp_path, "lz4")
    begin = 4
    keys, values = RowCodec(KEY), RowCodec(VALUE)
    for partition in range(PARTITIONS):
        backend = Backend("files", f"{checkpoint}/state")
        provider = backend.open(operator_id=OPERATOR, partition_id=partition, key_schema=KEY, value_schema=VALUE)
        provider.start_at(begin)
        for batch in range(begin, BATCHES):
            with provider.get_store(batch) as store:
                store.put(keys.encode_one((f"new in {batch}", partition)), values.encode_one((batch, None, [])))
                store.commit()
    new_rows = [((f"new in {batch}", part), (batch, None, []), part) for batch in (4, 5) for part in range(PARTITIONS)]
    for version, expected in ((begin, []), (5, new_rows[:PARTITIONS]), (6, new_rows)):
        frame = spark_reader(spark, checkpoint, OPERATOR, "default", batchId=version - 1)
        assert rows_in(frame, "partition_id") == sorted(expected, key=repr)
        for store in stores_of(checkpoint):
            loaded = spark_state(spark, store, version, *read_schema_file(store.schema_file))
            assert loaded == our_state(store.folder, version)
            assert len(loaded) == version - begin


def test_sparks_reader_needs_the_schema_file(spark, checkpoint_with, tmp_path):
    """So what it shows, it shows by that file."""
    copy = writable_copy(checkpoint_with("lz4"), tmp_path / "copy")
    Store(copy, OPERATOR, 0, "default").schema_file.unlink()
    with pytest.raises(PySparkException, match="STDS_FAILED_TO_READ_STATE_SCHEMA"):
        spark_reader(spark, copy, OPERATOR, "default")


def test_a_query_goes_on_with_our_state_beside_it_but_not_with_sparks_metadata(spark, tmp_path):
    checkpoint, inbox, start = stateless_query(spark, tmp_path, "lz4")
    write_state(checkpoint, "lz4", "default")
    inbox.add({"n": BATCHES})
    start()
    assert committed_batches(checkpoint)[-1] == BATCHES

    add_sparks_metadata(checkpoint)
    inbox.add({"n": BATCHES + 1})
    with pytest.raises(PySparkException, match="STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"):
        start()


# A query with state of Spark's own, of which we rewrite files


def rewrite(store, name, codec, marks):
    """Decode a file and publish it again from its records, some of them with more in the count; returns how many."""
    folder, marked = Folder.open(str(store.folder)), 0
    key_codec, value_codec = map(RowCodec, read_schema_file(store.schema_file))
    keys, values = decode_records(decompress(folder.read(name), name), name)
    for position, key in enumerate(keys):
        (word,) = key_codec.decode_one(key)
        if word in marks:
            (count,) = value_codec.decode_one(values[position])
            values[position] = value_codec.encode_one((count + marks[word],))
            marked += 1
    folder.publish(name, compress(encode_records(keys, values), codec))
    return marked


@both_codecs
def test_spark_goes_on_from_files_that_we_rewrote(spark, codec, tmp_path):
    """Every partition's newest delta and its snapshot are ours; marks in both show that Spark read exactly these."""
    checkpoint = tmp_path / "checkpoint"
    inbox = Inbox(tmp_path / "inbox", "word string")
    counts = Counter()

    def batches(*batches):
        for words in batches:
            inbox.add(*({"word": word} for word in words))
            counts.update(words)
        table = f"counts_{codec}"
        frame = inbox.stream(spark).groupBy("word").count()
        with conf(spark, codec):
            run(frame, checkpoint, sink="memory", mode="complete", name=table)
        return {row["word"]: row["count"] for row in spark.table(table).collect()}

    early, late, each = [[f"{when} {i}" for i in range(8)] for when in ("early", "late", "each")]
    batches(early + each, each, each)
    with conf(spark, codec):
        for store in stores_of(checkpoint):
            spark_maintenance(spark, store, *read_schema_file(store.schema_file))
    assert batches(each, late + each) == counts

    stores = stores_of(checkpoint)
    assert {store.partition for store in stores} == set(range(PARTITIONS))
    marked = []
    for store in stores:
        assert (store.chain.snapshots, store.versions[-1]) == ({3}, 5)
        marked.append(rewrite(store, "3.snapshot", codec, dict.fromkeys(early, 1000)))
        marked.append(rewrite(store, "5.delta", codec, dict.fromkeys(late, 100)))
    assert min(marked) > 0
    counts.update(dict.fromkeys(early, 1000))
    counts.update(dict.fromkeys(late, 100))

    assert batches(early + late + each + ["new"]) == counts
    rows, *_ = spark_rows(spark, checkpoint, 0, "default", 5)
    assert rows.total() == len(counts)
