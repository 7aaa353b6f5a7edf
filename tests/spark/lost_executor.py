"""A query whose executor is killed in the middle of a task, and then spread over the executors anew; a script.

The functions that Spark runs are nested, so that they travel by value: workers cannot import this module.
"""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from uuid import UUID

from order_totals import totals, wait_for

import holdfast as hf
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.spark.session import Driver

PARTITIONS = 4
ROWS_PER_BATCH = 100
USERS = 20
LOST_IN_BATCH = 2


def session(folder):
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .config("spark.shuffle.reduceLocality.enabled", "false")
        .config("spark.locality.wait", "60s")  # a busy machine is no reason to move a task
        .config("spark.holdfast.host.folder", f"{folder}/h")
        .config("spark.holdfast.host.heartbeatInterval", "500ms")
        .getOrCreate()
    )


def executors(application):
    """The processes of an application's executors, by the executors' ids."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = process.joinpath("cmdline").read_text().split("\0")
        except OSError:
            continue
        if application in arguments and "--executor-id" in arguments:
            found[arguments[arguments.index("--executor-id") + 1]] = int(process.name)
    return found


def job(spark, folder):
    """Two operators, the second on what the first puts out; the first hangs once on executor 0."""
    reached, go_on = f"{folder}/reached", f"{folder}/go on"

    def pause(key):
        from pyspark import TaskContext

        from holdfast.spark.executor_identity import ExecutorIdentity

        batch = TaskContext.get().getLocalProperty("streaming.sql.batchId")
        if batch == str(LOST_IN_BATCH) and ExecutorIdentity.of_this_worker().executor_id == "0":
            Path(reached).touch()
            while not Path(go_on).exists():
                time.sleep(0.02)

    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH).load()
    orders = numbers.selectExpr(f"concat('u', value % {USERS}) as user", "value as amount")
    running = totals(orders, partitions=PARTITIONS, pause=pause)
    return hf.group_by(running, "user", name="updates").agg(updates=hf.count())


def places(spark, query, folder):
    """Where the partitions of both operators are."""
    coordinator = Driver.existing(spark).coordinator
    stores = [StateStoreId(f"file:{folder}/c/state", op, part) for op in (1000, 1001) for part in range(PARTITIONS)]
    return [coordinator.get_location(StateStoreProviderId(store, UUID(query.runId))) for store in stores]


def loaded(logs):
    """The stores that hosts have loaded and not unloaded, by their logs."""
    left = set()
    for log in logs:
        text = log.read_text()
        for what, where in re.findall(r"(Loaded|Unloaded) .*?(/c/state/\d+/\d+)\b", text):
            left.add((log.name, where)) if what == "Loaded" else left.discard((log.name, where))
    return sorted(left)


def go_on(query, batches):
    """Wait for some more batches."""
    last = query.lastProgress["batchId"] if query.lastProgress else -1

    def there():
        assert query.exception() is None, query.exception()
        return query.lastProgress is not None and query.lastProgress["batchId"] >= last + batches

    wait_for(there, f"{batches} batches")


def main():
    folder = sys.argv[1]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(folder)
    application = spark.sparkContext.applicationId
    found = {}
    stream = job(spark, folder)
    found["anchors"] = len(dict(spark.sparkContext._jsc.getPersistentRDDs()))
    query = stream.writeStream.format("noop").outputMode("update").option("checkpointLocation", f"{folder}/c").start()
    go_on(query, 1)
    found["at first"] = places(spark, query, folder)

    wait_for(Path(folder, "reached").exists, "the task on executor 0")
    os.kill(executors(application)["0"], signal.SIGKILL)
    Path(folder, "go on").touch()
    wait_for(lambda: sorted(spark.sparkContext._jsc.sc().getExecutorIds().mkString(" ").split()) == ["1", "2"], "ids")
    go_on(query, 3)
    found["after the loss"] = places(spark, query, folder)

    hf.rebalance(spark)
    go_on(query, 2)
    found["rebalanced"] = places(spark, query, folder)
    go_on(query, 2)
    found["later"] = places(spark, query, folder)
    found["progress"] = hf.state_operators(query)[-4:]

    query.stop()
    wait_for(lambda: not any(places(spark, query, folder)), "the end of the run")
    logs = [log for log in Path(folder, "h", "logs").glob("*.log") if "host of executor 0 " not in log.read_text()]
    found["logs"] = len(logs)
    wait_for(lambda: not loaded(logs), "the hosts to unload what nobody needs")
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
