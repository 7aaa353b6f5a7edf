"""A function on Arrow tables, many keys at a time."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from group_operator import Operator, batch

from holdfast.errors import FunctionFailed, InvalidRequest, InvalidSchema
from holdfast.groups import ArrowFunctionPlan

ROWS = "user string, amount long"
STATE = "n long, total long"
TOTALS = "user string, n long, total long"


def totals(rows, states):
    sums = rows.group_by("user").aggregate([("amount", "count"), ("amount", "sum")])
    both = states.join(sums, "user")
    new = pa.table(
        {
            "total": pc.add(pc.fill_null(both["total"], 0), both["amount_sum"]),
            "user": both["user"],
            "n": pc.add(pc.fill_null(both["n"], 0), both["amount_count"]),
        }
    )
    return new, new


def operator(folder, fn, source=ROWS, state=STATE, output=TOTALS, keys=("user",), **options):
    return Operator(ArrowFunctionPlan(keys, source, state, output, fn), folder, **options)


def by_user(rows):
    return {row["user"]: (row["n"], row["total"]) for row in rows}


def test_running_totals_with_columns_in_any_order(tmp_path):
    running = operator(tmp_path, totals)
    running.run(batch(ROWS, ("a", 1), ("b", 10)), batch(ROWS, ("a", 2)))
    assert by_user(running.run(batch(ROWS, ("a", 3), ("", 0)))) == {"a": (3, 6), "": (1, 0)}
    assert running.num_keys() == 3


def test_states_have_one_row_per_key_and_say_which_exist(tmp_path):
    seen = []

    def look(rows, states):
        seen.append((rows.to_pylist(), states.to_pylist()))
        return states.filter(pc.equal(states["user"], "a")).drop_columns("exists").set_column(
            1, "n", pa.array([7], pa.int32())
        ), None

    looking = operator(tmp_path, look, state="n long not null, total long")
    first = batch(ROWS, ("b", 1), ("a", 2), ("b", 3))
    assert looking.run(first) == []
    assert looking.run(batch(ROWS, ("a", 1), ("b", 2))) == []
    assert seen[0] == (
        first.to_pylist(),
        [
            {"user": "b", "n": None, "total": None, "exists": False},
            {"user": "a", "n": None, "total": None, "exists": False},
        ],
    )
    assert seen[1][1] == [
        {"user": "a", "n": 7, "total": None, "exists": True},
        {"user": "b", "n": None, "total": None, "exists": False},
    ]


def test_keys_that_are_not_returned_keep_their_state(tmp_path):
    answers = [True, False]

    def once(rows, states):
        return (totals(rows, states)[0] if answers.pop(0) else None), None

    keeping = operator(tmp_path, once)
    keeping.run(batch(ROWS, ("a", 1)))
    keeping.run(batch(ROWS, ("a", 2)))
    keeping.plan.fn = totals
    assert by_user(keeping.run(batch(ROWS, ("a", 3)))) == {"a": (2, 4)}


def test_a_key_whose_remove_is_true_is_removed(tmp_path):
    def drop_large(rows, states):
        new, _ = totals(rows, states)
        keep = pc.less(new["total"], 100)
        # What the columns of a removed state hold does not matter.
        return new.set_column(0, "total", pc.if_else(keep, new["total"], None)).append_column(
            "remove", pc.invert(keep)
        ), None

    dropping = operator(tmp_path, drop_large, state="n long, total long not null")
    dropping.run(batch(ROWS, ("a", 1), ("b", 2), ("c", 500)))
    assert dropping.num_keys() == 2
    dropping.run(batch(ROWS, ("a", 99), ("b", 1)))
    assert dropping.num_keys() == 1


def test_keys_that_are_null_nan_or_nested(tmp_path):
    source = "k struct<x:double>, j double, x long"
    nan, other_nan = float("nan"), -float("nan")
    rows = [({"x": 0.0}, nan, 1), ({"x": -0.0}, other_nan, 2), (None, None, 3), ({"x": None}, 0.0, 4)]

    def count(rows, states):
        assert states.num_rows == 3
        n = pa.array([(n or 0) + 1 for n in states["n"].to_pylist()])
        new = states.set_column(2, "n", n)
        return new, new.select(["n"])

    counting = operator(tmp_path, count, source, "n long", "n long", keys=("k", "j"))
    counting.run(batch(source, *rows))
    assert counting.run(batch(source, *reversed(rows))) == [{"n": 2}] * 3
    assert counting.num_keys() == 3


def test_no_rows_no_call(tmp_path):
    def never(rows, states):
        raise AssertionError

    assert operator(tmp_path, never).run(batch(ROWS)) == []


def test_an_error_in_the_function(tmp_path):
    def broken(rows, states):
        return rows["nothing"]

    with pytest.raises(FunctionFailed, match=r"(?s)broken failed on the rows of 1 keys: KeyError.*line") as e:
        operator(tmp_path, broken).run(batch(ROWS, ("a", 1)))
    assert isinstance(e.value.__cause__, KeyError)


def states_of(*users, **more):
    columns = {"user": pa.array(users, pa.string()), "n": [1] * len(users), "total": [1] * len(users)}
    return pa.table({**columns, **more})


@pytest.mark.parametrize(
    ("result", "kind", "problem"),
    [
        (None, InvalidRequest, "returns a tuple"),
        ((states_of("a"),), InvalidRequest, "returns a tuple"),
        ((states_of("a", "z"), None), InvalidRequest, r"key \('z',\) is not in the states"),
        ((states_of(None), None), InvalidRequest, r"key \(None,\) is not in the states"),
        ((states_of("a", "b", "a"), None), InvalidRequest, r"key \('a',\) occurs twice"),
        ((states_of("a").drop_columns("n"), None), InvalidSchema, "has the columns"),
        ((states_of("a", more=[1]), None), InvalidSchema, "has the columns"),
        ((states_of("a", remove=[1]), None), InvalidSchema, "'remove' is boolean, but the data is int64"),
        ((states_of("a", remove=pa.array([None], pa.bool_())), None), InvalidSchema, "'remove' is boolean not null"),
        (("states", None), InvalidSchema, "is a pyarrow.Table, not str"),
        (
            (None, states_of("a").set_column(1, "n", pa.array(["1"]))),
            InvalidSchema,
            "'n' is bigint, but the data is string",
        ),
        (
            (None, states_of("a").set_column(1, "n", pa.array([1.5]))),
            InvalidSchema,
            "'n' is bigint, and a value .* does not",
        ),
        ((None, states_of("a").set_column(1, "n", pa.array([2**63], pa.uint64()))), InvalidSchema, "'n' is bigint"),
    ],
)
def test_results_that_do_not_fit(tmp_path, result, kind, problem):
    with pytest.raises(kind, match=problem):
        operator(tmp_path, lambda rows, states: result).run(batch(ROWS, ("a", 1), ("b", 1)))


def test_output_is_cast_where_nothing_is_lost(tmp_path):
    output = "a decimal(5,2), b string, c timestamp, d double, e long"
    table = pa.table(
        {
            "e": pa.array([None]),
            "a": pa.array([5]),
            "b": pa.array(["x"]).dictionary_encode(),
            "c": pa.array([1], pa.timestamp("ms", tz="Asia/Tokyo")),
            "d": pa.array([1], pa.int8()),
        }
    )
    (row,) = operator(tmp_path, lambda rows, states: (None, table), output=output).run(batch(ROWS, ("a", 1)))
    assert (str(row["a"]), row["b"], row["c"].timestamp(), row["d"], row["e"]) == ("5.00", "x", 0.001, 1.0, None)


@pytest.mark.parametrize("state", ["exists boolean", "remove long", "user string", "n long, n long"])
def test_names_that_clash(state):
    with pytest.raises(InvalidSchema, match="twice"):
        ArrowFunctionPlan(["user"], ROWS, state, TOTALS, totals)
