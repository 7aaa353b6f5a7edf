"""Loading a large snapshot, against Spark's own state reader on the same checkpoint.

    python tests/bench/bench_load.py [--keys 1000000] [--repeats 7] [--json FILE]

A real query makes the checkpoint, and a state of one partition is put beside it as one snapshot. Holdfast opens it in
a new provider each time; Spark counts it with `spark.read.format("statestore")`, in a JVM that has done so before.
The two alternate and the best of each counts. Exits with 1 if Holdfast is slower.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from bench_files import rows
from bench_rows import best

from holdfast.checkpoint.log import CheckpointLog
from holdfast.checkpoint.schema_files import StateSchema, write_state_schema
from holdfast.checkpoint.storage import Folder
from holdfast.conformance import Backend
from holdfast.rows import arrow_schema

OPERATOR = 1000
KEY, VALUE = "user string", "count long, sum long"
TARGET = 1.0


def session():
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )


def checkpoint_with_state(spark, folder, count):
    """The checkpoint of a query that ran one batch, with a state of that many keys at version 1."""
    checkpoint = f"{folder}/checkpoint"
    spark.range(1).write.parquet(f"{folder}/input")
    stream = spark.readStream.schema("id long").parquet(f"{folder}/input")
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    store = Folder.open(f"{checkpoint}/state/{OPERATOR}/0")
    keys, values = rows(count, np.random.default_rng(42))
    write_state_schema(store, StateSchema(arrow_schema(KEY), arrow_schema(VALUE)))
    CheckpointLog(store, "lz4").write_snapshot(1, zip(keys, values, strict=True))
    return checkpoint


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        spark = session()
        spark.sparkContext.setLogLevel("ERROR")
        checkpoint = checkpoint_with_state(spark, folder, options.keys)

        def ours():
            provider = Backend("files", f"{checkpoint}/state").open(
                operator_id=OPERATOR, key_schema=KEY, value_schema=VALUE
            )
            with provider.get_read_store(1) as store:
                assert store.metrics.num_keys == options.keys
            provider.close()

        def sparks():
            reader = spark.read.format("statestore").option("operatorId", OPERATOR)
            assert reader.load(checkpoint).count() == options.keys

        for _ in range(2):
            sparks()
        ours_seconds, sparks_seconds = best(options.repeats, ours, sparks)
        spark.stop()
    ratio = ours_seconds / sparks_seconds
    print(f"loading a snapshot of {options.keys:,} keys, best of {options.repeats}")
    print(f"  Holdfast, a new provider      {ours_seconds:8.2f} s")
    print(f"  Spark's state reader, warm    {sparks_seconds:8.2f} s")
    print(f"  ratio                         {ratio:8.2f}   (target: at most {TARGET})")
    if options.json:
        figures = {"keys": options.keys, "ratio": ratio, "holdfast_s": ours_seconds, "spark_s": sparks_seconds}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
