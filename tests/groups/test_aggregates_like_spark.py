"""Aggregates equal Spark's own, whatever the data and however it is cut into batches."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from group_operator import Operator, batch

from holdfast.groups import AggregatePlan, aggregates
from holdfast.rows import arrow_schema, ddl

pytestmark = pytest.mark.spark

NAN, INF = float("nan"), float("inf")
DAY = dt.date(2024, 2, 29)
INSTANT = dt.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=dt.timezone.utc)

POOLS = {
    "byte": [-128, 0, 5, 127],
    "short": [-32768, 0, 7, 32767],
    "int": [-(2**31), 0, 9, 2**31 - 1],
    "long": [-(2**40), 0, 11, 2**40],
    "float": [0.0, -0.0, 1.5, -2.25, NAN, INF, -INF],
    "double": [0.0, -0.0, 1.5, -2.25, NAN, INF, -INF],
    "decimal(10,2)": [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99"), Decimal("1.05")],
    "decimal(18,0)": [Decimal(1), Decimal(-(10**18 - 1)), Decimal(10**18 - 1)],
    "decimal(30,10)": [Decimal("1.0000000001"), Decimal("-12345678901234567890.0000000007"), Decimal("0E-10")],
    "decimal(38,4)": [Decimal("1.0001"), Decimal("-1234567890123456789012345678.0007")],
    "string": ["", "a", "b", "ab", "é", "z\0"],
    "binary": [b"", b"\0", b"\xff", b"a"],
    "boolean": [True, False],
    "date": [DAY, DAY - dt.timedelta(days=40_000)],
    "timestamp": [INSTANT, INSTANT - dt.timedelta(days=40_000, microseconds=3)],
    "timestamp_ntz": [INSTANT.replace(tzinfo=None), dt.datetime(1, 1, 1)],
    "struct<a:int,b:string>": [{"a": 1, "b": None}, {"a": 1, "b": "x"}, {"a": None, "b": "y"}],
    "array<double>": [[], [1.0, None], [NAN]],
    "map<string,int>": [[("a", 1)], []],
}
NUMBERS = [
    kind for kind in POOLS if kind.split("(")[0] in {"byte", "short", "int", "long", "float", "double", "decimal"}
]
IN_PLACE = {"byte", "short", "int", "long", "float", "double", "boolean", "date", "timestamp", "decimal(10,2)"}
ORDERED = [kind for kind in POOLS if not kind.startswith(("array", "map"))]


def sample(rng, kinds, rows, keys):
    schema = arrow_schema("k int, " + ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds)))
    # Few values for some keys, so that there are groups of nulls only.
    return batch(
        schema,
        *(
            (rng.choice(keys), *(rng.choice(POOLS[kind]) if rng.random() < 0.7 else None for kind in kinds))
            for _ in range(rows)
        ),
    )


def every_aggregate(kinds):
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

    ours, theirs = {"n": aggregates.count()}, [F.count("*").alias("n")]

    def add(function, at, **options):
        name = f"{function}_{at}_{len(options)}"
        ours[name] = getattr(aggregates, function)(f"c{at}", **options)
        theirs.append(getattr(F, function)(f"c{at}", *options.values()).alias(name))

    for at, kind in enumerate(kinds):
        add("count", at)
        for function in ("min", "max") if kind in ORDERED else ():
            add(function, at)
        for function in ("sum", "avg") if kind in NUMBERS else ():
            add(function, at)
        # With variable-width buffers Spark sorts rows by key first, and what is first then is a matter of luck.
        for function in ("first", "last") if set(kinds) <= IN_PLACE else ():
            add(function, at)
            add(function, at, ignore_nulls=True)
    return ours, theirs


def spark_rows(spark, data, keys, theirs):
    whole = spark.createDataFrame(pa.Table.from_batches([data]), ddl(data.schema))
    frame = whole.groupBy(*keys).agg(*theirs)
    return frame.toArrow(), arrow_schema(frame.schema)


def comparable(value):
    if isinstance(value, float):
        return "NaN" if value != value else value
    if isinstance(value, dict):
        return {name: comparable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.astimezone(dt.timezone.utc)
    return value


def by_key(rows, keys):
    found = {repr([comparable(row[key]) for key in keys]): {n: comparable(v) for n, v in row.items()} for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("kinds", [sorted(POOLS), sorted(IN_PLACE)], ids=["all", "in_place"])
@pytest.mark.parametrize("rows", [5, 150, 1000])
@pytest.mark.parametrize("ansi", [True, False])
def test_every_aggregate_of_every_type(spark, tmp_path, kinds, rows, ansi):
    rng = random.Random(rows)
    data = sample(rng, kinds, rows, keys=[1, 2, 3, None])
    ours, theirs = every_aggregate(kinds)
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        expected, schema = spark_rows(spark, data, ["k"], theirs)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")

    plan = AggregatePlan(["k"], data.schema, ours, ansi=ansi)
    assert [(f.name, f.type) for f in plan.output_schema] == [(f.name, f.type) for f in schema]
    operator = Operator(plan, tmp_path)
    newest = {}
    cuts = sorted(rng.randrange(data.num_rows + 1) for _ in range(2))
    for start, end in zip([0, *cuts], [*cuts, data.num_rows], strict=True):
        middle = rng.randint(start, end)
        rows = operator.run(data.slice(start, middle - start), data.slice(middle, end - middle))
        newest |= by_key(rows, ["k"])
    assert newest == by_key(expected.to_pylist(), ["k"])


def test_long_sums_wrap_without_ansi(spark, tmp_path):
    rng = random.Random(7)
    values = [2**63 - 1, -(2**63), 2**62, -1, 1, None]
    data = batch("k int, x long", *((rng.randrange(5), rng.choice(values)) for _ in range(200)))
    from pyspark.sql import functions as F  # noqa: N812

    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        expected, _ = spark_rows(spark, data, ["k"], [F.sum("x").alias("s"), F.avg("x").alias("a")])
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    plan = AggregatePlan(["k"], data.schema, {"s": aggregates.sum("x"), "a": aggregates.avg("x")}, ansi=False)
    assert by_key(Operator(plan, tmp_path).run(data), ["k"]) == by_key(expected.to_pylist(), ["k"])


@pytest.mark.parametrize("kind", ["decimal(38,0)", "decimal(38,10)", "decimal(30,2)"])
def test_decimals_that_overflow_are_null_without_ansi(spark, tmp_path, kind):
    field = arrow_schema(f"x {kind}").field("x").type
    top = Decimal((0, (9,) * field.precision, -field.scale))
    bottom = top.copy_negate()
    rows = [(1, top), (1, top), (2, top), (2, bottom), (3, bottom), (3, bottom), (3, None), (4, top), (5, None)]
    data = batch(f"k int, x {kind}", *rows)
    from pyspark.sql import functions as F  # noqa: N812

    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        expected, _ = spark_rows(spark, data, ["k"], [F.sum("x").alias("s"), F.avg("x").alias("a")])
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    plan = AggregatePlan(["k"], data.schema, {"s": aggregates.sum("x"), "a": aggregates.avg("x")}, ansi=False)
    assert by_key(Operator(plan, tmp_path).run(data), ["k"]) == by_key(expected.to_pylist(), ["k"])


@pytest.mark.parametrize(
    "kind",
    ["float", "double", "string", "decimal(38,4)", "struct<a:int,b:string>", "struct<x:array<double>>", "binary"],
)
def test_keys_group_as_sparks(spark, tmp_path, kind):
    from pyspark.sql import functions as F  # noqa: N812

    rng = random.Random(3)
    pool = POOLS.get(kind) or [{"x": [0.0]}, {"x": [-0.0]}, {"x": [NAN, None]}, {"x": None}, {"x": []}]
    data = batch(
        f"k {kind}, j long, x long",
        *((rng.choice([None, *pool]), rng.choice([None, 1, 2]), rng.randrange(9)) for _ in range(200)),
    )
    theirs = [F.count("*").alias("n"), F.sum("x").alias("s")]
    expected, _ = spark_rows(spark, data, ["k", "j"], theirs)
    plan = AggregatePlan(["k", "j"], data.schema, {"n": aggregates.count(), "s": aggregates.sum("x")}, ansi=True)
    operator = Operator(plan, tmp_path)
    newest = by_key(operator.run(data.slice(0, 150)), ["k", "j"]) | by_key(operator.run(data.slice(150)), ["k", "j"])
    # -0.0 and 0.0 are equal, but print differently: Spark normalises them too.
    assert newest == by_key(expected.to_pylist(), ["k", "j"])
