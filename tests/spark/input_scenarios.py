"""Real Spark jobs whose input arrives whole, or does not; run as a script for a Spark with other settings.

The functions that Spark runs are nested, so that they travel by value: workers cannot import this module.
"""

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

PATIENCE = 60


def recording(folder, at_first_batch):
    """A function for mapInArrow that reads all of its input, and writes down whether that was all of it."""

    def function(batches):
        from pyspark import TaskContext

        from holdfast.errors import Unavailable
        from holdfast.spark.complete_input import complete_input

        rows, verdict = 0, "complete"
        try:
            for batch in complete_input(batches):
                if rows == 0 and at_first_batch is not None:
                    at_first_batch()
                rows += batch.num_rows
        except Unavailable:
            verdict = "cut"
        attempt = TaskContext.get().taskAttemptId()
        # Spark may kill the worker of a failed task at any moment, so the record appears whole or not at all.
        draft = Path(folder, f".{attempt}")
        draft.write_text(json.dumps({"verdict": verdict, "rows": rows, "worker": os.getpid()}))
        draft.rename(Path(folder, f"{attempt:06d}"))
        return iter(())

    return function


def run(frame, at_first_batch=None):
    """The attempts of one job, in the order of their start, and the error it ended with, if any."""
    with tempfile.TemporaryDirectory() as folder:
        error = None
        try:
            frame.mapInArrow(recording(folder, at_first_batch), "id long").count()
        except Exception as failure:  # noqa: BLE001 -- which type it is differs between the versions of PySpark
            error = str(failure)
        if error is not None:
            # Spark reports a failure without waiting for the worker.
            await_file(lambda: any(path.name[0] != "." for path in Path(folder).iterdir()), error)
        names = sorted(path for path in Path(folder).iterdir() if path.name[0] != ".")
        return [json.loads(path.read_text()) for path in names], error


def await_file(is_there, explanation):
    deadline = time.monotonic() + PATIENCE
    while not is_there():
        assert time.monotonic() < deadline, explanation
        time.sleep(0.02)


def ordinary(spark):
    return run(spark.range(0, 100_000, 1, 3))


def empty_partitions(spark):
    return run(spark.range(0, 10, 1, 2).where("id > 100").repartition(3))


def upstream_error(spark):
    return run(spark.range(0, 2_000_000, 1, 1).selectExpr("if(id = 1500000, raise_error('boom'), id) as id"))


def upstream_error_after_shuffle(spark):
    shuffled = spark.range(0, 2_000_000, 1, 1).repartition(1)
    return run(shuffled.selectExpr("if(id = 1500000, raise_error('boom'), id) as id"))


def fetch_failure(spark):
    """The shuffle files vanish while the first attempt reads them."""
    with tempfile.TemporaryDirectory() as folder:
        done = str(Path(folder, "done"))

        def lose_shuffle_files():
            if not Path(done).exists():
                Path(done).touch()
                for place in os.environ["SPARK_LOCAL_DIRS"].split(","):
                    for path in Path(place).rglob("shuffle_*.data"):
                        path.unlink()

        return run(spark.range(0, 2_000_000, 1, 8).repartition(1), lose_shuffle_files)


def cancelled(spark):
    with tempfile.TemporaryDirectory() as folder:
        started = str(Path(folder, "started"))
        found = []

        def tell():
            Path(started).touch()

        def job():
            spark.sparkContext.setJobGroup("cancelled", "a job that is cancelled", interruptOnCancel=True)
            found.append(run(spark.range(0, 2_000_000_000, 1, 1), tell))

        thread = threading.Thread(target=job)
        thread.start()
        await_file(Path(started).exists, "the task did not start")
        spark.sparkContext.cancelJobGroup("cancelled")
        thread.join(PATIENCE)
        return found[0]


SCENARIOS = [
    ordinary,
    empty_partitions,
    upstream_error,
    upstream_error_after_shuffle,
    fetch_failure,
    cancelled,
]


def main():
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for setting in sys.argv[1:]:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    shown = {scenario.__name__: scenario(spark) for scenario in SCENARIOS}
    spark.stop()
    print(json.dumps(shown))


if __name__ == "__main__":
    main()
