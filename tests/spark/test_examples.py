"""The jobs of docs/examples do what they say."""

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from streaming_jobs import Input, outputs

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone.utc)


@pytest.fixture(autouse=True)
def few_partitions(spark):
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.unset("spark.sql.shuffle.partitions")


def example(name):
    path = EXAMPLES / f"{name}.py"
    # Not imported: workers could not do the same, and so get the functions by value.
    names = {"__name__": "example"}
    exec(compile(path.read_text(), path, "exec"), names)
    return names


def after(seconds):
    return NOON + dt.timedelta(seconds=seconds)


def test_every_example_is_here():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


def test_running_totals(spark, tmp_path):
    source = Input(spark, tmp_path / "orders", "user string, amount long")
    source.add(("ann", 3), ("ann", 4), ("bob", 1))
    source.add(("ann", -1))
    totals = example("running_totals")["running_totals"](source.stream())
    assert outputs(totals, tmp_path / "c") == [[("ann", 2, 7, 4), ("bob", 1, 1, 1)], [("ann", 3, 6, 4)]]


def test_deduplication(spark, tmp_path):
    source = Input(spark, tmp_path / "events", "id string, at timestamp, body string")
    source.add(("a", after(1), "second"), ("a", after(0), "first"), ("b", after(0), "b"))
    source.add(("a", after(2), "again"), ("c", after(3600), "c"))
    source.add(("a", after(3601), "much later"))
    frame = example("deduplication")["deduplicated"](source.stream()).select("id", "body")
    assert outputs(frame, tmp_path / "c")[:3] == [[("a", "first"), ("b", "b")], [("c", "c")], [("a", "much later")]]


def test_fraud_per_card(spark, tmp_path):
    source = Input(spark, tmp_path / "payments", "card string, at timestamp, amount double")
    source.add(("x", after(0), 0.5), ("y", after(0), 900.0), ("z", after(5), 900.0), ("z", after(0), 0.9))
    source.add(("x", after(59), 501.0), ("y", after(1), 0.1))
    source.add(("x", after(61), 700.0))
    frame = example("fraud_per_card")["alerts"](source.stream()).select("card", "amount")
    assert outputs(frame, tmp_path / "c") == [[("z", 900.0)], [("x", 501.0)], []]


def test_enrichment(spark, tmp_path):
    orders = Input(spark, tmp_path / "orders", "customer string, at timestamp, order_id long")
    addresses = Input(spark, tmp_path / "addresses", "customer string, at timestamp, address string")
    orders.add(("ann", after(1), 1), ("bob", after(1), 2))
    addresses.add(("ann", after(0), "Oslo"))
    orders.add(("ann", after(9), 3), ("ann", after(11), 4))
    addresses.add(("ann", after(10), "Rome"))
    frame = example("enrichment")["enriched"](orders.stream(), addresses.stream())
    assert outputs(frame, tmp_path / "c") == [
        [("ann", 1, "Oslo"), ("bob", 2, None)],
        [("ann", 3, "Oslo"), ("ann", 4, "Rome")],
    ]


def test_top_k(spark, tmp_path):
    source = Input(spark, tmp_path / "scores", "game string, score long")
    source.add(("go", 5), ("go", 9), ("go", 1), ("go", 7), ("chess", 2))
    source.add(("go", 8))
    assert outputs(example("top_k")["top_scores"](source.stream()), tmp_path / "c") == [
        [("chess", [2]), ("go", [9, 7, 5])],
        [("go", [9, 8, 7])],
    ]


def test_a_script_runs_by_itself(tmp_path):
    folder = tmp_path / "orders"
    folder.mkdir()
    (folder / "0.json").write_text(json.dumps({"user": "ann", "amount": 12345}) + "\n")
    arguments = [sys.executable, EXAMPLES / "running_totals.py", folder, tmp_path / "checkpoint"]
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": "--master local[1] --conf spark.ui.enabled=false "
        "--conf spark.sql.shuffle.partitions=1 pyspark-shell",
    }
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as job:
        try:
            assert any("12345" in line for line in job.stdout)
        finally:
            job.terminate()
