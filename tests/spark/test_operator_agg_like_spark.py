"""``agg`` puts out, batch by batch, what Spark's own streaming aggregation does in update mode."""

import random
import re
from decimal import Decimal

import pytest
from pyspark.sql import functions as sf
from streaming_jobs import Input, run

import holdfast as hf

pytestmark = pytest.mark.spark

SCHEMA = "k string, j double, small byte, whole long, real double, exact decimal(12,3), text string, flag boolean"


def a_row(rng):
    values = (
        rng.choice(["", "a", "b", "ü"]),
        rng.choice([0.0, -0.0, 1.5, float("nan")]),
        rng.randint(-128, 127),
        rng.randint(-(2**40), 2**40),
        # Eighths add up exactly, in whatever order.
        rng.choice([rng.randint(-800, 800) / 8, float("nan"), float("inf")]),
        Decimal(rng.randint(-(10**12) + 1, 10**12 - 1)) / 1000,
        rng.choice(["", "x", "yy", "Z"]),
        rng.choice([True, False]),
    )
    return tuple(None if rng.random() < 0.15 else value for value in values)


def comparable(batches):
    # As text, because NaN is not equal to itself.
    return [sorted(repr(row) for row in batch) for batch in batches]


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("keys", [["k"], ["j", "k"]])
def test_update_mode(spark, tmp_path, ansi, keys):
    rng = random.Random(f"{ansi}{keys}")
    source = Input(spark, tmp_path / "rows", SCHEMA)
    for rows in (1, 200, 40, 3):
        source.add(*(a_row(rng) for _ in range(rows)))
    ours, theirs = {"n": hf.count()}, [sf.count("*").alias("n")]
    for column in ("small", "whole", "real", "exact", "text", "flag"):
        number = column in {"small", "whole", "real", "exact"}
        for function in ("count", "min", "max", *(["sum", "avg"] if number else [])):
            name = f"{function}_{column}"
            ours[name] = getattr(hf, function)(column)
            theirs.append(getattr(sf, function)(column).alias(name))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        expected = source.stream().groupBy(*keys).agg(*theirs)
        found = hf.group_by(source.stream(), *keys).agg(**ours)
        assert found.dtypes == expected.dtypes
        our_batches = run(found, tmp_path / "ours", mode="update")[1]
        their_batches = run(expected, tmp_path / "theirs", mode="update")[1]
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.shuffle.partitions")
    assert comparable(our_batches) == comparable(their_batches)
    assert len(our_batches) == 4


LARGEST_LONG, LARGEST_DECIMAL = 2**63 - 1, Decimal("9" * 38)


def outcome(frame, checkpoint):
    """The rows of each batch; or the kind of error with which the query ends."""
    try:
        return comparable(run(frame, checkpoint, mode="update")[1])
    except Exception as failure:  # noqa: BLE001 -- which type it is differs between the versions of PySpark
        kinds = re.findall(r"\[([A-Z]+_[A-Z_]+)(?:\.[A-Z_]+)?\]", str(failure))
        around = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR"}
        return next(kind for kind in kinds if kind not in around)


@pytest.mark.parametrize("within", ["one batch", "two batches"])
@pytest.mark.parametrize(
    ("function", "kind", "values"),
    [
        ("sum", "long", [LARGEST_LONG, 1]),
        ("sum", "long", [-LARGEST_LONG, -5]),
        ("sum", "decimal(38,0)", [LARGEST_DECIMAL, Decimal(1)]),
        ("avg", "decimal(38,0)", [LARGEST_DECIMAL.copy_negate()] * 2),
    ],
    ids=["long", "negative long", "decimal", "mean of decimals"],
)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_overflow(spark, tmp_path, ansi, function, kind, values, within):
    source = Input(spark, tmp_path / "rows", f"k int, x {kind}")
    if within == "one batch":
        source.add(*((1, value) for value in values), (2, None))
    else:
        for value in values:
            source.add((1, value), (2, None))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        ours = outcome(hf.group_by(source.stream(), "k").agg(x=getattr(hf, function)("x")), tmp_path / "ours")
        expected = source.stream().groupBy("k").agg(getattr(sf, function)("x").alias("x"))
        theirs = outcome(expected, tmp_path / "theirs")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.shuffle.partitions")
    assert ours == theirs
    assert isinstance(theirs, str) == (ansi == "true")
