"""Rows of a state partition meet in the task of its number."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyspark
import pytest

from holdfast.errors import InvalidRequest

pytestmark = pytest.mark.spark


def tasks(placed):
    """Partition of each task -> partitions of the rows that it got."""

    def seen(batches):
        import pyarrow as pa
        from pyspark import TaskContext

        column = pa.concat_arrays([batch["__holdfast_partition"] for batch in batches] or [pa.array([], pa.int32())])
        found = ",".join(str(number) for number in sorted(set(column.to_pylist())))
        yield pa.RecordBatch.from_pydict({"task": [TaskContext.get().partitionId()], "found": [found]})

    return {
        row.task: row.found
        for row in placed.select("__holdfast_partition").mapInArrow(seen, "task long, found string").collect()
    }


@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("n", [1, 7])
def test_each_task_gets_its_own_keys(spark, anchored, adaptive, n):
    from holdfast.spark.placement import Placement

    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    placement = Placement(spark, n, anchored=anchored)
    try:
        rows = spark.range(1000).selectExpr("id as `a.b`", "if(id % 10 = 0, null, cast(id as string)) as `we``ird`")
        placed = placement.place(rows, ["a.b", "we`ird"])
        assert tasks(placed) == {number: str(number) for number in range(n)}
        assert placed.columns == ["a.b", "we`ird", "__holdfast_partition"]
        plan = placed._jdf.queryExecution().executedPlan().toString()
        outside_the_cache = plan.partition("InMemoryTableScan")[0]
        assert outside_the_cache.count("Exchange ") == 1, "the stream is shuffled once, the anchor not at all"
        assert ("ShuffledHashJoin" in plan) == anchored
    finally:
        spark.catalog.clearCache()
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_zeros_and_nans_are_one_key(spark):
    from holdfast.spark.placement import partition_of

    rows = spark.sql(
        "select explode(array(0.0d, -0.0d)) as x union all select explode(array(double('NaN'), -double('NaN')))"
    )
    parts = [row[0] for row in rows.select(partition_of(["x"], 1000)).collect()]
    assert parts[0] == parts[1]
    assert parts[2] == parts[3]


def test_own_columns_are_refused(spark):
    from holdfast.spark.placement import Placement

    with pytest.raises(InvalidRequest, match="__holdfast_partition are Holdfast's own"):
        Placement(spark, 2, anchored=False).place(spark.range(1).selectExpr("1 as __holdfast_partition"), ["id"])


def test_one_executor_needs_no_anchor(spark):
    from holdfast.spark.placement import needs_anchor

    assert not needs_anchor(spark.range(3))


CLUSTER = """
    import sys, tempfile
    from pyspark.sql import SparkSession
    from holdfast.spark.placement import Placement, needs_anchor

    spark = (
        SparkSession.builder.master("local-cluster[2,1,512]").config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.shuffle.reduceLocality.enabled", "false").config("spark.locality.wait", "30s")
        .config("spark.executor.memory", "512m")
        .getOrCreate()
    )
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
    assert needs_anchor(source)
    placement = Placement(spark, 6, anchored=True)
    folder = tempfile.mkdtemp()

    def record(batches):
        from pathlib import Path
        from pyspark import TaskContext
        from holdfast.spark.executor_identity import ExecutorIdentity
        context = TaskContext.get()
        found = {number for batch in batches for number in batch["__holdfast_partition"].to_pylist()}
        me = ExecutorIdentity.of_this_worker()
        assert found <= {context.partitionId()}, found
        name = f"{context.getLocalProperty('streaming.sql.batchId')}-{context.partitionId()}"
        Path(folder, name).write_text(f"{me.executor_id} {me.host} {me.key}")
        return iter(())

    placed = placement.place(source.select("value"), ["value"]).mapInArrow(record, "x int")
    query = placed.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp()).start()
    while (query.lastProgress or {"batchId": -1})["batchId"] < 4:
        assert query.exception() is None, query.exception()
        query.awaitTermination(0.2)
    query.stop()
    from pathlib import Path
    for path in sorted(Path(folder).iterdir()):
        print("RAN", path.name, path.read_text())
    spark.stop()
"""


def test_tasks_stay_with_their_executor_on_a_cluster():
    environment = {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    shown = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CLUSTER)], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    ran = [line.split()[1:] for line in shown.stdout.splitlines() if line.startswith("RAN ")]
    homes = {}
    for name, executor_id, _host, key in ran:
        batch, partition = name.split("-")
        if int(batch) < 5:
            homes.setdefault(int(partition), []).append((executor_id, key))
    assert sorted(homes) == list(range(6))
    assert all(len(where) == 5 and len(set(where)) == 1 for where in homes.values()), homes
    assert len({where[0] for where in homes.values()}) == 2, "both executors have work, each with one id and one key"
    assert {where[0][0] for where in homes.values()} == {"0", "1"}
