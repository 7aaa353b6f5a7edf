"""An operator on several executors: state stays where it is, and nothing stays behind when the executors are gone."""

import os
import sys
import textwrap
from time import monotonic, sleep

import pytest
from cluster_script import outcome_of

pytestmark = pytest.mark.spark

SCRIPT = """
    import json, sys, time
    from holdfast.spark.session import Driver
    from holdfast.ids import StateStoreId, StateStoreProviderId
    from pyspark.sql import SparkSession
    import holdfast as hf

    folder = sys.argv[1]
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.shuffle.reduceLocality.enabled", "false")
        .config("spark.locality.wait", "60s")  # a busy machine is no reason to move a task
        .config("spark.holdfast.host.folder", folder + "/h")
        .getOrCreate()
    )
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2000).load()
    out = hf.group_by(rows.selectExpr("value % 100 as k", "value as v"), "k").agg(n=hf.count(), total=hf.sum("v"))
    query = out.writeStream.format("noop").outputMode("update").option("checkpointLocation", folder + "/c").start()
    while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < 5):
        time.sleep(0.1)
    assert query.exception() is None, query.exception()
    (run,) = (run for run in Driver.existing(spark).claims._runs.values())
    coordinator = Driver.existing(spark).coordinator
    stores = [StateStoreProviderId(StateStoreId(run.state_root, 1000, p), run.query.run_id) for p in range(4)]
    places = [coordinator.get_location(store) for store in stores]
    progress = hf.state_operators(query)[-1]
    query.stop()
    spark.stop()
    print(json.dumps({"places": places, "progress": progress}))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c")
    return folder, outcome_of("-c", textwrap.dedent(SCRIPT), folder, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))


def test_state_is_spread_over_the_executors(outcome):
    _, shown = outcome
    assert len(set(shown["places"])) == 2
    assert all(place.startswith("executor_") for place in shown["places"])


def test_no_batch_loads_state_that_another_executor_has(outcome):
    _, shown = outcome
    metrics = shown["progress"]["customMetrics"]
    assert metrics["loadedMapCacheMissCount"] == 0
    assert metrics["loadedMapCacheHitCount"] == 4 * (shown["progress"]["batchId"] + 1)


def test_hosts_are_gone_with_their_executors(outcome):
    folder, _ = outcome
    deadline = monotonic() + 60
    while os.listdir(folder / "h") != ["logs"] and monotonic() < deadline:
        sleep(0.1)
    assert os.listdir(folder / "h") == ["logs"]
