"""Aggregates beyond what Spark's own can be asked: order, overflow, refusals."""

import pickle
from decimal import Decimal

import pyarrow as pa
import pytest
from group_operator import Operator, batch

from holdfast.errors import InvalidRequest, InvalidSchema
from holdfast.groups import AggregatePlan
from holdfast.groups import aggregates as hf

ROWS = "k string, x long, v array<string>"


def plan(ansi=True, source=ROWS, keys=("k",), **aggregates):
    return AggregatePlan(keys, source, aggregates, ansi=ansi)


def test_state_goes_on_from_batch_to_batch(tmp_path):
    operator = Operator(plan(n=hf.count(), total=hf.sum("x")), tmp_path)
    assert operator.run(batch(ROWS, ("a", 1, None), ("b", 2, None), ("a", 3, None))) == [
        {"k": "a", "n": 2, "total": 4},
        {"k": "b", "n": 1, "total": 2},
    ]
    # Only keys with rows in the batch are put out.
    assert operator.run(batch(ROWS, ("a", None, None))) == [{"k": "a", "n": 3, "total": 4}]
    assert operator.num_keys() == 2


def test_no_rows_give_nothing(tmp_path):
    operator = Operator(plan(n=hf.count()), tmp_path)
    assert operator.run() == []
    assert operator.run(batch(ROWS)) == []
    assert operator.num_keys() == 0


def test_first_and_last_are_in_the_order_of_arrival(tmp_path):
    chosen = {
        "f": hf.first("v"),
        "l": hf.last("v"),
        "fn": hf.first("v", ignore_nulls=True),
        "ln": hf.last("v", ignore_nulls=True),
    }
    operator = Operator(plan(**chosen), tmp_path)
    rows = [("a", 0, None), ("b", 0, ["b1"]), ("a", 0, ["a1"]), ("a", 0, ["a2", None]), ("b", 0, None)]
    first = {row["k"]: row for row in operator.run(batch(ROWS, *rows[:3]), batch(ROWS, *rows[3:]))}
    assert first["a"] == {"k": "a", "f": None, "l": ["a2", None], "fn": ["a1"], "ln": ["a2", None]}
    assert first["b"] == {"k": "b", "f": ["b1"], "l": None, "fn": ["b1"], "ln": ["b1"]}
    second = operator.run(batch(ROWS, ("a", 0, []), ("a", 0, None)))
    assert second == [{"k": "a", "f": None, "l": None, "fn": ["a1"], "ln": []}]


@pytest.mark.parametrize("split", [True, False], ids=["with the state", "in one batch"])
def test_a_long_sum_that_overflows_is_an_error_under_ansi(tmp_path, split):
    operator = Operator(plan(total=hf.sum("x")), tmp_path)
    rows = [("a", 2**62, None), ("b", -(2**63), None), ("a", 2**62, None)]
    with pytest.raises(InvalidRequest, match=r"ARITHMETIC_OVERFLOW.*long overflow in sum\(x\) as 'total'"):  # noqa: PT012
        if split:
            operator.run(batch(ROWS, *rows[:2]))
        operator.run(batch(ROWS, *rows))


def test_sums_at_the_limits_do_not_overflow(tmp_path):
    operator = Operator(plan(total=hf.sum("x")), tmp_path)
    operator.run(batch(ROWS, ("a", 2**63 - 1, None), ("b", -(2**63), None)))
    assert operator.run(batch(ROWS, ("a", 0, None), ("b", 2**63 - 1, None))) == [
        {"k": "a", "total": 2**63 - 1},
        {"k": "b", "total": -1},
    ]


@pytest.mark.parametrize("aggregate", [hf.sum("d"), hf.avg("d")])
def test_decimals_that_overflow(tmp_path, aggregate):
    source = "k string, d decimal(38,0)"
    big = batch(source, ("a", Decimal("9" * 38)))
    strict = Operator(plan(source=source, r=aggregate), tmp_path / "ansi")
    with pytest.raises(InvalidRequest, match=r"ARITHMETIC_OVERFLOW.*decimal overflow"):
        strict.run(big, big)
    lenient = Operator(plan(source=source, ansi=False, r=aggregate), tmp_path / "lenient")
    lenient.run(big, big)
    # Once lost, a sum stays lost.
    assert lenient.run(batch(source, ("a", Decimal(1)))) == [{"k": "a", "r": None}]


def test_a_mean_is_rounded_half_up(tmp_path):
    source = "k string, d decimal(4,2)"
    operator = Operator(plan(source=source, m=hf.avg("d")), tmp_path)
    rows = [("a", Decimal("0.01")), ("a", Decimal("0.00")), ("a", Decimal("0.00")), ("b", Decimal("-0.02"))]
    rows += [("b", Decimal("0.00"))] * 2 + [("c", Decimal("0.01"))] + [("c", Decimal(0))] * 31
    means = {row["k"]: row["m"] for row in operator.run(batch(source, *rows))}
    # 0.01 / 32 = 0.0003125: the digit after the last is a 2, then 5 is cut.
    assert means == {"a": Decimal("0.003333"), "b": Decimal("-0.006667"), "c": Decimal("0.000313")}


def test_spark_types_that_arrive_in_other_spellings(tmp_path):
    operator = Operator(plan(source="k string, t timestamp", t=hf.max("t")), tmp_path)
    arriving = pa.record_batch(
        {"k": pa.array(["a"], pa.large_string()), "t": pa.array([1], pa.timestamp("us", tz="America/New_York"))}
    )
    (row,) = operator.run(arriving)
    assert row["t"].timestamp() == 1e-6


def test_plans_travel():
    copy = pickle.loads(pickle.dumps(plan(n=hf.count(), d=hf.avg("x"))))
    assert copy.output_schema.names == ["k", "n", "d"]
    assert copy.state_schema.names == ["n", "d_sum", "d_count"]


@pytest.mark.parametrize(
    ("aggregates", "problem"),
    [
        ({}, "at least one aggregate"),
        ({"t": hf.sum("k")}, r"t=sum\(k\): the column is string, and it must be a number"),
        ({"t": hf.avg("v")}, "must be a number"),
        ({"t": hf.max("v")}, "a type with an order"),
        ({"t": hf.sum("y")}, "there is no column 'y'"),
        ({"k": hf.count()}, "two columns would be named k"),
        ({"a": hf.avg("x"), "a_sum": hf.sum("x")}, "two columns would be named a_sum"),
    ],
)
def test_refusals(aggregates, problem):
    with pytest.raises(InvalidSchema, match=problem):
        plan(**aggregates)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([], "at least one column"),
        (["k", "k"], "name each once"),
        (["q"], "no column 'q'"),
        (["m"], "maps have no order"),
        (["s"], "'s.m' is map"),
    ],
)
def test_keys_that_cannot_be(keys, problem):
    with pytest.raises(InvalidSchema, match=problem):
        plan(source="k int, m map<int,int>, s struct<m: map<int,int>>", keys=keys, n=hf.count())


def test_a_batch_with_other_columns_is_refused(tmp_path):
    operator = Operator(plan(n=hf.count()), tmp_path)
    with pytest.raises(InvalidSchema, match="declared as"):
        operator.run(batch("k string, y long", ("a", 1)))
