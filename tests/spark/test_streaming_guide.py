"""The examples of docs/streaming.md, as they are printed there."""

import re
from pathlib import Path

import pytest
from streaming_jobs import Input, outputs, run

import holdfast as hf

GUIDE = Path(__file__).parents[2] / "docs" / "streaming.md"

pytestmark = pytest.mark.spark

EXPECTED = {
    "totals": [[("ann", 2, 7), ("bob", 1, 5)], [("ann", 3, 8)]],
    "tops": [[("ann", 4), ("bob", 5)], [("ann", 4)]],
    "stats": [[("ann", 2, 7, 4), ("bob", 1, 5, 5)], [("ann", 3, 8, 1)]],
    "newcomers": [[("ann",), ("bob",)], []],
}


def test_the_guide(spark, tmp_path):
    orders = Input(spark, tmp_path / "orders", "user string, amount long")
    orders.add(("ann", 3), ("ann", 4), ("bob", 5))
    orders.add(("ann", 1))
    names = {"__name__": "guide", "orders": orders.stream()}
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S):
            exec(compile(block, GUIDE, "exec"), names)
    finally:
        spark.conf.unset("spark.sql.shuffle.partitions")
    for name, expected in EXPECTED.items():
        assert outputs(names[name], tmp_path / name) == expected, name


def test_progress_is_listed_whole(spark, tmp_path):

    orders = Input(spark, tmp_path / "orders", "user string")
    orders.add(("ann",))
    query, _ = run(hf.group_by(orders.stream(), "user", partitions=1).agg(n=hf.count()), tmp_path / "c")
    section = re.search(r"## Progress\n(.*?)\n## ", GUIDE.read_text(), re.S).group(1)
    assert set(hf.state_operators(query)[0]) <= set(re.findall(r"`(\w+)`", section))
