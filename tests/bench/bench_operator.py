"""Stateful streaming end to end: Holdfast against Spark's own state APIs, in one run.

    python tests/bench/bench_operator.py [--rows 200000] [--keys 50000] [--batches 6] [--only NAME ...] [--json FILE]

Every way counts and sums amounts by key over the same micro-batches (Spark's rate-micro-batch source, keys spread by a
hash), into the noop sink, one query after the other in one session. What counts is the median rate of the batches after
the first two, which pay for loading code and for keys that are new. Python's slow ways get fewer batches.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from functools import partial

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
OUTPUT = "key long, n long, total long"
STATE = "n long, total long"
WARM_UP = 2


def session(partitions):
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "6g")
        .config("spark.sql.shuffle.partitions", str(partitions))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
        .getOrCreate()
    )


def stream(spark, rows, keys):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
    return source.selectExpr(f"pmod(hash(value), {keys}) * 1L as key", "value as amount")


def apply(df, provider="files"):
    def totals(key, rows, state):
        n, total = state.get((0, 0))
        for row in rows:
            n += 1
            total += row.amount
        state.update((n, total))
        yield (*key, n, total)

    return hf.group_by(df, "key", provider=provider).apply(totals, output=OUTPUT, state=STATE)


def apply_arrow(df):
    def totals(rows, states):
        fresh = rows.group_by("key").aggregate([("amount", "count"), ("amount", "sum")])
        both = fresh.join(states, "key")
        n = pc.add(pc.fill_null(both["n"], 0), both["amount_count"])
        total = pc.add(pc.fill_null(both["total"], 0), both["amount_sum"])
        new = pa.table({"key": both["key"], "n": n, "total": total})
        return new, new

    return hf.group_by(df, "key").apply_arrow(totals, output=OUTPUT, state=STATE)


def agg(df, provider="files"):
    return hf.group_by(df, "key", provider=provider).agg(n=hf.count(), total=hf.sum("amount"))


def jvm(df):
    return df.groupBy("key").agg({"*": "count", "amount": "sum"})


def ceiling(df):
    def count(batches):
        for batch in batches:
            yield pa.record_batch({"n": pa.array([batch.num_rows], pa.int64())})

    return df.repartition("key").mapInArrow(count, "n long")


def apply_in_pandas_with_state(df):
    import pandas as pd
    from pyspark.sql.streaming.state import GroupStateTimeout

    def totals(key, frames, state):
        n, total = state.get if state.exists else (0, 0)
        for frame in frames:
            n += len(frame)
            total += int(frame["amount"].sum())
        state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    return df.groupBy("key").applyInPandasWithState(totals, OUTPUT, STATE, "update", GroupStateTimeout.NoTimeout)


def _processor(in_pandas):
    import pandas as pd
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle):
            self.value = handle.getValueState("totals", STATE)

        def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's names
            n, total = self.value.get() if self.value.exists() else (0, 0)
            if in_pandas:
                for frame in rows:
                    n += len(frame)
                    total += int(frame["amount"].sum())
            else:
                for row in rows:
                    n += 1
                    total += row.amount
            self.value.update((n, total))
            yield (
                pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})
                if in_pandas
                else Row(key=key[0], n=n, total=total)
            )

        def close(self):
            pass

    return Totals()


def transform_with_state_in_pandas(df):
    return df.groupBy("key").transformWithStateInPandas(_processor(True), OUTPUT, "Update", "None")


def transform_with_state(df):
    return df.groupBy("key").transformWithState(_processor(False), OUTPUT, "Update", "None")


# How each way is run: the function, Spark's provider for it, and how much of the number of batches it gets.
WAYS = {
    "mapInArrow that only counts rows (ceiling)": (ceiling, HDFS, 1),
    "holdfast agg": (agg, HDFS, 1),
    "holdfast apply_arrow": (apply_arrow, HDFS, 1),
    "holdfast apply": (apply, HDFS, 1),
    "holdfast agg, lmdb": (partial(agg, provider="lmdb"), HDFS, 1),
    "holdfast apply, lmdb": (partial(apply, provider="lmdb"), HDFS, 1),
    "Spark JVM aggregation, RocksDB": (jvm, ROCKSDB, 1),
    "Spark JVM aggregation, HDFS-backed": (jvm, HDFS, 1),
    "transformWithState (rows), RocksDB": (transform_with_state, ROCKSDB, 0.5),
    "applyInPandasWithState, HDFS-backed": (apply_in_pandas_with_state, HDFS, 0.5),
    "transformWithStateInPandas, RocksDB": (transform_with_state_in_pandas, ROCKSDB, 0.5),
}


def rate(spark, way, rows, keys, batches):
    """Rows per second of one way: the median over its batches after the warm-up."""
    build, provider, share = WAYS[way]
    spark.conf.set(PROVIDER, provider)
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    wanted = max(WARM_UP + 1, round(batches * share)) + WARM_UP
    query = (
        build(stream(spark, rows, keys))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", folder)
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < wanted):
            time.sleep(0.1)
        if query.exception():
            raise query.exception()
        done = [p for p in query.recentProgress if p["numInputRows"] and WARM_UP <= p["batchId"] < wanted]
        return statistics.median(p["numInputRows"] / (p["durationMs"]["triggerExecution"] / 1000) for p in done)
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(WAYS))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    spark = session(arguments.partitions)
    spark.sparkContext.setLogLevel("ERROR")
    rates = {}
    for way in [way for way in WAYS if any(part in way for part in arguments.only)]:
        rates[way] = rate(spark, way, arguments.rows, arguments.keys, arguments.batches)
        print(f"{rates[way]:>12,.0f} rows/s  {way}", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"rows": arguments.rows, "keys": arguments.keys, "rates": rates}, file)
    spark.stop()


if __name__ == "__main__":
    main()
