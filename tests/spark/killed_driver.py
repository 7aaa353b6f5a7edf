"""A driver with several queries that all hang, each at another point of a batch; a script, to be killed there."""

import os
import sys
import time
from pathlib import Path

from order_totals import PARTITION_0, PARTITION_1, orders, totals

BATCHES = [
    [("u0", 1), ("u1", 10)],
    [("u0", 2), ("u1", 20), ("u2", 200)],
    [("u1", 30), ("u0", 3)],
]
"""The input: what each micro-batch reads."""

HANGS_IN_BATCH = {
    "before the first commit": 0,
    "before any commit": 1,
    "after some commits": 1,
    "after all commits": 1,
    "after Spark's commit log": 2,
}


def reached(folder):
    """The file that says that a query hangs where it should."""
    return Path(folder, "reached")


def hang(folder):
    reached(folder).touch()
    # A worker may outlive its driver for a moment; then it goes on, as one would whose network was away.
    while not Path(folder, "go on").exists():
        time.sleep(0.02)


def start(spark, folder, point):
    """Start the query that hangs at a point."""
    batch = HANGS_IN_BATCH[point]
    hang_with = {"after some commits": [PARTITION_1]}.get(point, [PARTITION_0, PARTITION_1])
    in_function = point in {"before the first commit", "before any commit", "after some commits"}

    def pause(key):
        from pyspark import TaskContext

        if key[0] in hang_with and TaskContext.get().getLocalProperty("streaming.sql.batchId") == str(batch):
            Path(folder, "reached").touch()
            while not Path(folder, "go on").exists():
                time.sleep(0.02)

    def write(frame, batch_id):
        if point == "after Spark's commit log" and batch_id == batch:
            hang(folder)
        frame.collect()
        if point == "after all commits" and batch_id == batch:
            hang(folder)

    source = orders(spark, Path(folder, "orders"))
    for rows in BATCHES:
        source.add(*rows)
    frame = totals(source.stream(), pause=pause if in_function else None)
    frame.writeStream.foreachBatch(write).option("checkpointLocation", str(Path(folder, "checkpoint"))).start()


def main():
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[8]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.getOrCreate()
    for point in HANGS_IN_BATCH:
        folder = Path(sys.argv[1], point)
        folder.mkdir()
        start(spark, str(folder), point)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
