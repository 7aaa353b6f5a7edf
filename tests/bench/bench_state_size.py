"""What a large state costs a query: its batches while it runs, and its first batch after a restart.

    python tests/bench/bench_state_size.py [--small 100000] [--large 5000000] [--restart 1000000] [--json FILE]

A first batch brings all keys in, then every batch changes 50,000 of them, spread evenly; into the noop sink. The two
sizes alternate run by run, and the medians of their batches are compared. After a restart, Holdfast and Spark's own
aggregation on its HDFS-backed provider each load their own state of the same content from their own checkpoint.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile

from bench_operator import HDFS, PROVIDER, agg, jvm, session

CHANGES = 50_000
BATCHES = 9
WARM_UP = 3


def write_input(spark, folder, keys, batches):
    """One file with every key, then files that change some, in the order in which the source takes them."""
    spark.range(keys).selectExpr("id as key", "id as amount").coalesce(1).write.parquet(f"{folder}/input/part=0")
    for batch in range(1, batches + 1):
        write_changes(spark, folder, keys, batch)


def write_changes(spark, folder, keys, batch):
    """As many different keys whatever the size, and not neighbours: the stride has no divisor in common with it."""
    some = spark.range(CHANGES).selectExpr(f"pmod(id * 7919 + {batch} * 104729, {keys}) as key", "id as amount")
    some.coalesce(1).write.parquet(f"{folder}/input/part={batch}")


def run(spark, build, folder, checkpoint):
    """Durations in seconds of the batches that a run of the query needs for what has come, by batch."""
    stream = (
        spark.readStream.schema("key long, amount long, part int")
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/input")
    )
    query = (
        build(stream.select("key", "amount"))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {p["batchId"]: p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]}


def running(spark, keys):
    """The median duration of a batch on a state of this many keys."""
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    try:
        write_input(spark, folder, keys, BATCHES)
        took = run(spark, agg, folder, f"{folder}/checkpoint")
        return statistics.median(seconds for batch, seconds in took.items() if batch >= WARM_UP)
    finally:
        shutil.rmtree(folder)


def restarting(spark, keys, build):
    """The duration of the first batch after a restart on a state of this many keys."""
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    try:
        write_input(spark, folder, keys, 1)
        run(spark, build, folder, f"{folder}/checkpoint")
        write_changes(spark, folder, keys, 2)
        (first,) = run(spark, build, folder, f"{folder}/checkpoint").values()
        return first
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=5_000_000)
    parser.add_argument("--restart", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    spark = session(2)
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set(PROVIDER, HDFS)
    small, large, ours, sparks = [], [], [], []
    for _ in range(arguments.repeats):
        small.append(running(spark, arguments.small))
        large.append(running(spark, arguments.large))
        ours.append(restarting(spark, arguments.restart, agg))
        sparks.append(restarting(spark, arguments.restart, jvm))
        print(
            f"batch {small[-1]:.2f} s, {large[-1]:.2f} s; restart {ours[-1]:.2f} s, Spark {sparks[-1]:.2f} s",
            flush=True,
        )
    figures = {
        "small": arguments.small,
        "large": arguments.large,
        "batch_ratio": min(large) / min(small),
        "restart": arguments.restart,
        "restart_ratio": min(ours) / min(sparks),
    }
    print(figures)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file)
    spark.stop()


if __name__ == "__main__":
    main()
