"""A Python function per key."""

import copy
import datetime as dt
import pickle
import re
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from group_operator import Operator, batch

from holdfast.errors import FunctionFailed, InvalidRequest, InvalidSchema
from holdfast.groups import RowFunctionPlan
from holdfast.groups.python_rows import row_maker

ROWS = "user string, amount long"
STATE = "n long, total long"
TOTALS = "user string, n long, total long"
UTC = dt.timezone.utc


def totals(key, rows, state):
    n, total = state.get((0, 0))
    for row in rows:
        n += 1
        total += row.amount
    state.update((n, total))
    yield (*key, n, total)


def operator(folder, fn, source=ROWS, state=STATE, output=TOTALS, keys=("user",), **options):
    return Operator(RowFunctionPlan(keys, source, state, output, fn), folder, **options)


def test_running_totals(tmp_path):
    running = operator(tmp_path, totals)
    running.run(batch(ROWS, ("a", 1), ("b", 10)), batch(ROWS, ("a", 2)))
    assert running.run(batch(ROWS, ("a", 3), ("", 0))) == [
        {"user": "a", "n": 3, "total": 6},
        {"user": "", "n": 1, "total": 0},
    ]


def test_each_key_is_called_once_with_all_its_rows_in_order(tmp_path):
    calls = []

    def collect(key, rows, state):
        calls.append((key, [row.amount for row in rows]))

    rows = [(f"u{i * 7 % 40}", i) for i in range(2000)]
    pieces = [batch(ROWS, *rows[start : start + 300]) for start in range(0, 2000, 300)]
    assert operator(tmp_path, collect).run(*pieces) == []
    assert Counter(key for key, _ in calls) == Counter({(f"u{i}",): 1 for i in range(40)})
    for (user,), amounts in calls:
        assert amounts == [amount for name, amount in rows if name == user]


def test_rows_that_a_function_does_not_read_are_not_the_next_keys(tmp_path):
    def peek(key, rows, state):
        yield key[0], next(rows).amount, 0

    rows = [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("a", 5)]
    assert [(row["user"], row["n"]) for row in operator(tmp_path, peek).run(batch(ROWS, *rows))] == [("a", 1), ("b", 3)]


def test_no_rows_no_calls(tmp_path):
    def never(key, rows, state):
        raise AssertionError

    assert operator(tmp_path, never).run(batch(ROWS)) == []


def test_state_can_be_looked_at_changed_and_removed(tmp_path):
    seen = []

    def toggle(key, rows, state):
        seen.append((state.exists, state.get(), state.get("none")))
        if state.exists:
            state.remove()
            assert not state.exists
            assert state.get() is None
        else:
            state.update((1, 2))
            assert state.exists
            assert state.get().total == 2
        return [(key[0], 1, 1)]

    toggling = operator(tmp_path, toggle)
    for _ in range(2):
        toggling.run(batch(ROWS, ("a", 1)))
    assert toggling.num_keys() == 0
    toggling.run(batch(ROWS, ("a", 1)))
    assert seen == [(False, None, "none"), (True, (1, 2), (1, 2)), (False, None, "none")]


def test_a_state_that_is_not_touched_stays(tmp_path):
    def first_only(key, rows, state):
        if not state.exists:
            state.update((1, next(rows).amount))
        yield (*key, *state.get())

    keeping = operator(tmp_path, first_only)
    keeping.run(batch(ROWS, ("a", 5)))
    keeping.run(batch(ROWS, ("a", 6)))
    assert keeping.run(batch(ROWS, ("a", 7))) == [{"user": "a", "n": 1, "total": 5}]


def test_watermark_and_batch_time(tmp_path):
    seen = []
    looking = operator(tmp_path, lambda key, rows, state: seen.append((state.watermark, state.batch_time)))
    looking.run(batch(ROWS, ("a", 1)), watermark_ms=1500, batch_time_ms=0)
    looking.run(batch(ROWS, ("a", 1)))
    assert seen == [
        (dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC), dt.datetime(1970, 1, 1, tzinfo=UTC)),
        (None, None),
    ]


EVERY_TYPE = (
    "b boolean, i8 byte, i16 short, i32 int, i64 long, f float, d double, s string, bin binary, day date, t timestamp, "
    "n timestamp_ntz, small decimal(10,2), big decimal(38,10), l array<struct<x:int>>, m map<string,array<int>>, "
    "st struct<a:int,b:timestamp>"
)
VALUES = (
    True,
    -1,
    -2,
    -3,
    2**63 - 1,
    1.5,
    float("inf"),
    "",
    b"\0",
    dt.date(1, 1, 1),
    dt.datetime(2024, 1, 1, tzinfo=UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    Decimal("1.20"),
    Decimal("1.0000000001"),
    [{"x": None}, None],
    [("a", [1, None])],
    {"a": 1, "b": dt.datetime(2024, 1, 1, tzinfo=UTC)},
)


@pytest.mark.parametrize("values", [VALUES, (None,) * len(VALUES)], ids=["values", "nulls"])
def test_every_type_as_row_state_and_output(tmp_path, values):
    def echo(key, rows, state):
        previous = state.get()
        (row,) = rows
        state.update(row)
        if previous is not None:
            assert previous == row
            yield previous

    echoing = operator(tmp_path, echo, EVERY_TYPE, EVERY_TYPE, EVERY_TYPE, keys=("s", "l", "st", "d", "big"))
    assert echoing.run(batch(EVERY_TYPE, values)) == []
    (row,) = echoing.run(batch(EVERY_TYPE, values))
    assert tuple(row.values()) == values


def test_named_rows_of_awkward_names():
    make = row_maker(["count", "index", "user id", "class", "_x", "__len__", "count"])
    row = make((1, 2, 3, 4, 5, 6, 7))
    assert (row.count, row.index, row["user id"], getattr(row, "class"), row._x, row["__len__"]) == (1, 2, 3, 4, 5, 6)
    assert (len(row), row[-1], row[1:3], tuple(row)) == (7, 7, (2, 3), (1, 2, 3, 4, 5, 6, 7))
    with pytest.raises(KeyError, match="no column 'y'"):
        row["y"]
    with pytest.raises(AttributeError):
        row.y  # noqa: B018
    again = pickle.loads(pickle.dumps(row))
    assert (again, again["user id"], copy.deepcopy(row)) == (row, 3, row)
    assert repr(make(range(7))).startswith("Row(count=0, index=1, user id=2")


def broken(key, rows, state):
    raise ZeroDivisionError("on purpose")


def broken_later(key, rows, state):
    yield (*key, 1, 1)
    broken(key, rows, state)


@pytest.mark.parametrize("fn", [broken, broken_later])
def test_an_error_in_the_function_shows_the_key_and_where(tmp_path, fn):
    with pytest.raises(
        FunctionFailed, match=rf"{fn.__name__} failed for key \('zoe',\): ZeroDivisionError: on purp"
    ) as e:
        operator(tmp_path, fn).run(batch(ROWS, ("zoe", 1)))
    trace = str(e.value).splitlines()
    assert trace[2] == "Traceback (most recent call last):"
    assert re.search(rf'test_row_function.py", line \d+, in {fn.__name__}$', trace[3]), "begins with the function"
    assert trace[-1] == "ZeroDivisionError: on purpose"
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    assert e.traceback[-1].name == "_results"


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ([("a", 1)], r"has 3 columns, and \('a', 1\) has 2"),
        ([("a", 1, 1, 1)], "has 3 columns"),
        (("a", 1, 1), "a row is a tuple, and this is str 'a'"),
        ([("a", "1", 1)], "column 'n' is bigint, and the value is str '1'"),
        ([("a", 1.5, 1)], "column 'n' is bigint"),
        ([("a", 2**63, 1)], "column 'n' is bigint"),
        ([(5, 1, 1)], "column 'user' is string, and the value is int 5"),
    ],
)
def test_output_that_does_not_fit_names_the_column(tmp_path, result, problem):
    with pytest.raises(InvalidSchema, match=rf"output of .*{problem}"):
        operator(tmp_path, lambda key, rows, state: result).run(batch(ROWS, ("a", 1), ("b", 1)))


def test_a_result_that_is_no_iterable(tmp_path):
    with pytest.raises(FunctionFailed, match="'int' object is not iterable"):
        operator(tmp_path, lambda key, rows, state: 5).run(batch(ROWS, ("a", 1)))


@pytest.mark.parametrize("values", [(1,), (1, 2, 3), "ab", 5, None])
def test_a_state_of_other_width_is_an_error_at_once(tmp_path, values):
    with pytest.raises(FunctionFailed, match="the state is a tuple of") as e:
        operator(tmp_path, lambda key, rows, state: state.update(values)).run(batch(ROWS, ("a", 1)))
    assert isinstance(e.value.__cause__, InvalidSchema)


def test_a_state_of_another_type_names_column_and_key(tmp_path):
    def wrong(key, rows, state):
        state.update((1, "x" if key.user == "b" else 1))

    problem = r"state of key \('b',\): column 'total' is bigint, and the value is str 'x'"
    with pytest.raises(InvalidSchema, match=problem):
        operator(tmp_path, wrong).run(batch(ROWS, ("a", 1), ("b", 1), ("c", 1)))


@pytest.mark.parametrize(
    ("declared", "value"), [("timestamp", dt.datetime(2024, 1, 1)), ("timestamp_ntz", dt.datetime.now(UTC))]
)
def test_a_time_with_the_wrong_kind_of_zone_is_refused(tmp_path, declared, value):
    fn = lambda key, rows, state: [(value,)]  # noqa: E731
    with pytest.raises(InvalidSchema, match="column 't'"):
        operator(tmp_path, fn, output=f"t {declared}").run(batch(ROWS, ("a", 1)))


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("date", dt.datetime(2024, 1, 1, 5)),
        ("int", 1.5),
        ("array<int>", [1.5]),
        ("struct<t:timestamp>", {"t": dt.datetime(2024, 1, 1)}),
        ("struct<a:int>", {"b": 1}),
        ("timestamp", 5),
        ("decimal(3,2)", Decimal("0.001")),
    ],
)
def test_values_that_would_be_changed_are_refused(tmp_path, declared, value):
    fn = lambda key, rows, state: [(value,)]  # noqa: E731
    with pytest.raises(InvalidSchema, match="column 'x'"):
        operator(tmp_path, fn, output=f"x {declared}").run(batch(ROWS, ("a", 1)))


def test_structs_may_be_tuples_and_maps_dicts(tmp_path):
    fn = lambda key, rows, state: [((1, "x"), {"a": 1})]  # noqa: E731
    rows = operator(tmp_path, fn, output="s struct<a:int,b:string>, m map<string,int>").run(batch(ROWS, ("a", 1)))
    assert rows == [{"s": {"a": 1, "b": "x"}, "m": [("a", 1)]}]


def test_none_in_a_column_that_is_not_null(tmp_path):
    fn = lambda key, rows, state: state.update((None, 1))  # noqa: E731
    with pytest.raises(InvalidSchema, match="column 'n' is bigint not null, and the value is NoneType"):
        operator(tmp_path, fn, state="n long not null, total long").run(batch(ROWS, ("a", 1)))


def test_times_that_python_does_not_have(tmp_path):
    early = pa.record_batch({"user": ["a"], "t": pa.array([-(2**62)], pa.timestamp("us", tz="UTC"))})
    with pytest.raises(FunctionFailed, match="use apply_arrow") as e:
        operator(tmp_path, lambda key, rows, state: list(rows), source="user string, t timestamp").run(early)
    assert isinstance(e.value.__cause__, InvalidRequest)


def test_values_of_ten_megabytes(tmp_path):
    def keep(key, rows, state):
        (row,) = rows
        yield key[0], (state.get(("",))[0] or "")[-1:], len(row.text)
        state.update((row.text,))

    source = "user string, text string"
    keeping = operator(tmp_path, keep, source, "text string", "user string, last string, size long")
    texts = [(f"u{i}", f"{i}" * 10_000_000) for i in range(8)]
    keeping.run(batch(source, *texts))
    assert keeping.run(batch(source, *texts)) == [
        {"user": f"u{i}", "last": f"{i}", "size": 10_000_000} for i in range(8)
    ]


def test_a_million_rows_of_one_key(tmp_path):
    size = 1_000_000
    table = pa.table({"user": ["a"] * size, "amount": pa.array(range(size))})
    rows = operator(tmp_path, totals).run(*table.to_batches(max_chunksize=100_000))
    assert rows == [{"user": "a", "n": size, "total": size * (size - 1) // 2}]


def test_more_output_than_is_held_at_once(tmp_path):
    def explode(key, rows, state):
        return ((key[0], n, row.amount) for row in rows for n in range(50_000))

    table = operator(tmp_path, explode).table(batch(ROWS, ("a", 1), ("b", 2)))
    assert table.num_rows == 100_000
    assert table["n"].to_pylist() == [*range(50_000)] * 2
