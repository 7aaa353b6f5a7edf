"""Tasks that Spark runs again; a script, because the number of attempts is the Spark context's.

The functions that Spark runs are nested, so that they travel by value: workers cannot import this module.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from order_totals import PARTITION_0, orders, state_of, totals, versions
from streaming_jobs import outputs


def run(spark, folder, **how):
    """Two batches; returns what is put out, the state, and the versions."""
    source = orders(spark, folder / "orders")
    source.add(("u0", 1), ("u1", 10))
    source.add(("u0", 2), ("u1", 20))
    then = how.pop("then", lambda frame: frame)
    found = outputs(then(totals(source.stream(), **how)), folder / "checkpoint")
    state = {key: value for (key,), value in state_of(folder / "checkpoint").items()}
    return {"output": found, "state": state, "versions": versions(folder / "checkpoint")}


def task_fails_before_commit(spark, folder):
    def pause(key):
        from pyspark import TaskContext

        if TaskContext.get().attemptNumber() == 0:
            raise ValueError("the first attempt fails when its state has been set")

    return run(spark, folder, pause=pause)


def task_fails_after_commit(spark, folder):
    """What reads the operator's output is in the same task; it fails once the state has been committed."""

    def fail_first(batches):
        from pyspark import TaskContext

        for batch in batches:
            if TaskContext.get().attemptNumber() < 2:
                raise ValueError("the first attempts fail with the operator's output")
            yield batch

    return run(spark, folder, then=lambda frame: frame.mapInArrow(fail_first, frame.schema))


def stage_fails(spark, folder):
    """The shuffle files vanish between the first task and the second, so that the stage before has to run again."""
    lost = str(folder / "lost")

    def pause(key):
        if key == (PARTITION_0,) and not Path(lost).exists():
            Path(lost).touch()
            for place in os.environ["SPARK_LOCAL_DIRS"].split(","):
                for path in Path(place).rglob("shuffle_*.data"):
                    path.unlink()

    found = run(spark, folder, pause=pause)
    assert Path(lost).exists()
    return found


SCENARIOS = [task_fails_before_commit, task_fails_after_commit, stage_fails]


def speculation(spark):
    """What a context that may run copies of tasks is told."""
    from holdfast.errors import InvalidRequest

    stream = spark.readStream.format("rate").load().selectExpr("'u' as user", "value as amount")
    try:
        totals(stream)
    except InvalidRequest as refused:
        return str(refused)
    return None


def session(master, **settings):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    found = {}
    spark = session("local[1,3]")
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            found[scenario.__name__] = scenario(spark, Path(folder))
    spark.stop()
    spark = session("local[1]", **{"spark.speculation": "true"})
    found["speculation"] = speculation(spark)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
