"""Spark's own view of state files, to hold ours against: its state reader, and its provider through py4j."""

import json
import os
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import IntegerType, NullType, StructField, StructType

from holdfast import StateStoreId
from holdfast.checkpoint.chain import Chain
from holdfast.checkpoint.log import CheckpointLog
from holdfast.checkpoint.storage import Folder
from holdfast.rows import RowCodec

DEFAULT = "default"


@contextmanager
def spark_conf(spark, **conf):
    """Set configuration for a while; ``__`` stands for a dot, and keys are those after ``spark.sql.``."""
    settings = {"spark.sql." + key.replace("__", "."): value for key, value in conf.items()}
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def writable_copy(checkpoint, target):
    """A copy that Spark may write to."""
    shutil.copytree(checkpoint, target, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(0o755)
    return target


# What there is in a checkpoint


@dataclass(frozen=True)
class Store:
    """One store of a checkpoint that has state files."""

    checkpoint: Path
    operator: int
    partition: int
    name: str

    @property
    def folder(self):
        root = str(self.checkpoint / "state")
        return Path(StateStoreId(root, self.operator, self.partition, self.name).store_checkpoint_location())

    @property
    def chain(self):
        return Chain.of(path.name for path in self.folder.iterdir())

    @property
    def versions(self):
        chain = self.chain
        return sorted(chain.deltas | chain.snapshots)

    @property
    def schema_file(self):
        """Spark keeps it once for all partitions, with the first."""
        return Store(self.checkpoint, self.operator, 0, self.name).folder / "_metadata" / "schema"


def stores_of(checkpoint):
    """Every store of every operator and partition, found by the files alone."""
    folders = {path.parent for pattern in ("*.delta", "*.snapshot") for path in (checkpoint / "state").rglob(pattern)}
    parts = [folder.relative_to(checkpoint / "state").parts for folder in sorted(folders)]
    return [Store(checkpoint, int(part[0]), int(part[1]), part[2] if part[2:] else DEFAULT) for part in parts]


def committed_batches(checkpoint):
    return sorted(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())


# What we make of it


def our_log(folder, codec="lz4", **options):
    return CheckpointLog(Folder.open(str(folder)), codec, **options)


def our_state(folder, version, **options):
    """The pairs of one version, as Holdfast reads them from the files."""
    state = {}
    for piece in our_log(folder, **options).load(version):
        if piece.is_snapshot:
            state = {}
        for key, value in zip(piece.keys, piece.values, strict=True):
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
    return state


def our_rows(checkpoint, operator, name, version, key_schema, value_schema):
    """The rows of all partitions in the form of ``spark_rows``, decoded by Holdfast."""
    rows = Counter()
    for store in stores_of(checkpoint):
        if (store.operator, store.name) == (operator, name):
            state = our_state(store.folder, version)
            columns = [[store.partition] * len(state)]
            for schema, encoded in ((key_schema, state), (value_schema, state.values())):
                columns += RowCodec(without_void(schema)).decode(list(encoded)).columns
            rows += rows_of(columns)
    return rows


def rows_of(columns):
    """Rows as something that can be counted: ``repr`` because values may be lists or dicts.

    By position, because Spark's aggregations give one name to several columns.
    """
    lists = (column if isinstance(column, list) else column.to_pylist() for column in columns)
    return Counter(map(repr, zip(*lists, strict=True)))


def without_void(schema):
    """Deduplication keeps a column of type void: always null, and then laid out as any other column is."""
    columns = ((column, IntegerType() if column.dataType == NullType() else column.dataType) for column in schema)
    return StructType([StructField(column.name, kind, column.nullable) for column, kind in columns])


# What Spark makes of it: its reader


def spark_reader(spark, checkpoint, operator, name, **options):
    reader = spark.read.format("statestore").option("operatorId", operator).option("storeName", name)
    return reader.options(**options).load(str(checkpoint))


def spark_rows(spark, checkpoint, operator, name, batch):
    """The rows after one batch, and the schemas of key and value, as Spark's reader has them."""
    frame = spark_reader(spark, checkpoint, operator, name, batchId=batch)
    # Not "key.*" and "value.*": Spark then reads the wrong column where two have one name.
    rows = rows_of(frame.select("partition_id", "key", "value").toArrow().flatten().columns)
    return rows, frame.schema["key"].dataType, frame.schema["value"].dataType


def java_utf(text):
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def read_schema_file(path):
    """Key and value schema from a schema file of version 2: texts in chunks, each with its length before it."""
    data = path.read_bytes()
    assert data.startswith(java_utf("v2")), data[:8]
    position, texts = 4, []
    while position < len(data):
        chunks, position = int.from_bytes(data[position : position + 4], "big"), position + 4
        text = ""
        for _ in range(chunks):
            size, position = int.from_bytes(data[position : position + 2], "big"), position + 2
            text, position = text + data[position : position + size].decode(), position + size
        texts.append(text)
    key_schema, value_schema = (StructType.fromJson(json.loads(text)) for text in texts)
    return key_schema, value_schema


def write_schema_file(path, key_schema, value_schema):
    path.parent.mkdir(parents=True, exist_ok=True)
    one_chunk = (1).to_bytes(4, "big")
    texts = (schema.json() for schema in (key_schema, value_schema))
    path.write_bytes(java_utf("v2") + b"".join(one_chunk + java_utf(text) for text in texts))


# What Spark makes of it: its provider


@contextmanager
def spark_provider(spark, store, key_schema, value_schema):
    """Spark's HDFSBackedStateStoreProvider on the files of a store, made as an executor makes it."""
    jvm = spark._jvm
    state = jvm.org.apache.spark.sql.execution.streaming.state
    session = spark._jsparkSession.sessionState()
    run_id = jvm.java.util.UUID.randomUUID()
    hadoop_conf = session.newHadoopConf()
    hadoop_conf.set("sql.streaming.runId", run_id.toString())
    store_id = state.StateStoreId(str(store.checkpoint / "state"), store.operator, store.partition, store.name)
    key, value = (jvm.org.apache.spark.sql.types.DataType.fromJson(s.json()) for s in (key_schema, value_schema))
    conf = state.StateStoreConf.apply(session.conf())
    provider = state.StateStoreProvider.createAndInit(
        state.StateStoreProviderId(store_id, run_id),
        key,
        value,
        state.NoPrefixKeyStateEncoderSpec(key),
        False,  # column families
        conf,
        hadoop_conf,
        False,  # several values per key
        jvm.scala.Option.empty(),  # provider of schemas by id
    )
    assert provider.getClass().getSimpleName() == "HDFSBackedStateStoreProvider"
    try:
        yield provider
    finally:
        provider.close()


def spark_state(spark, store, version, key_schema, value_schema):
    """The pairs of one version, byte for byte, as Spark's provider loads them."""
    with spark_provider(spark, store, key_schema, value_schema) as provider:
        opened = provider.getReadStore(version, spark._jvm.scala.Option.empty())
        pairs, rows = {}, opened.iterator(DEFAULT)
        while rows.hasNext():
            row = rows.next()
            pairs[bytes(row.key().getBytes())] = bytes(row.value().getBytes())
        opened.abort()
    return pairs


def spark_maintenance(spark, store, key_schema, value_schema):
    """Let Spark's provider write a snapshot of the newest version, as its maintenance thread would."""
    with spark_provider(spark, store, key_schema, value_schema) as provider:
        provider.getReadStore(max(store.versions), spark._jvm.scala.Option.empty()).abort()
        provider.doMaintenance()


# Queries


class Inbox:
    """A folder that a streaming query reads, one file per batch."""

    def __init__(self, folder, schema):
        self.folder = folder
        self.schema = schema
        self._files = 0
        folder.mkdir()

    def add(self, *rows):
        """One more file; its name and time put it after those before."""
        path = self.folder / f"{self._files:03}.json"
        hidden = path.with_name("." + path.name)
        hidden.write_text("\n".join(map(json.dumps, rows)))
        os.utime(hidden, (1_700_000_000 + self._files,) * 2)
        hidden.rename(path)
        self._files += 1

    def stream(self, spark):
        reader = spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))


def run(frame, checkpoint, *, sink="noop", mode="append", name=None):
    """Process everything that is there, then stop."""
    writer = frame.writeStream.format(sink).outputMode(mode).option("checkpointLocation", str(checkpoint))
    query = (writer.queryName(name) if name else writer).trigger(availableNow=True).start()
    query.awaitTermination()
