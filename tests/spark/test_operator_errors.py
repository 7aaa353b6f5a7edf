"""What users are told when something cannot be, or goes wrong in their function."""

import subprocess
import sys

import pytest
from pyspark.errors import StreamingQueryException
from streaming_jobs import Input, outputs, run

import holdfast as hf
from holdfast.errors import InvalidRequest, InvalidSchema

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(spark, tmp_path):
    source = Input(spark, tmp_path / "orders", "user string, amount long, tags map<string,int>")
    source.add(("ann", 1, None), ("zoë", 0, None))
    return source


def failure(frame, checkpoint):
    with pytest.raises(StreamingQueryException) as e:
        run(frame, checkpoint)
    return str(e.value)


@pytest.mark.parametrize("lazy", [True, False])
def test_an_error_in_the_function_shows_the_key_and_the_traceback(orders, tmp_path, lazy):
    def share(amount):
        return 100 // amount

    def shares(key, rows, state):
        for row in rows:
            yield key.user, share(row.amount)

    def shares_at_once(key, rows, state):
        return list(shares(key, rows, state))

    fn = shares if lazy else shares_at_once
    frame = hf.group_by(orders.stream(), "user", partitions=1).apply(fn, output="user string, x long", state="n int")
    said = failure(frame, tmp_path / "checkpoint")
    assert "failed for key ('zoë',): ZeroDivisionError" in said
    assert "holdfast.errors.FunctionFailed" in said
    lines = [line.strip() for line in said.splitlines()]
    for name in ("shares", "share"):
        assert any(line.startswith(f'File "{__file__}", line') and line.endswith(f"in {name}") for line in lines), name
    assert "return 100 // amount" in lines
    assert not (tmp_path / "checkpoint" / "state" / "1000" / "0" / "1.delta").exists()


@pytest.mark.parametrize("kind", ["apply_arrow", "raw"])
def test_an_error_in_the_other_functions(orders, tmp_path, kind):
    def broken(first, second):
        list(second) if kind == "raw" else None
        raise LookupError("on purpose")

    if kind == "raw":
        frame = hf.map_partitions_with_state_store(
            orders.stream(), broken, "user", output="x int", key="k int", value="v int", partitions=1
        )
    else:
        frame = hf.group_by(orders.stream(), "user", partitions=1).apply_arrow(broken, output="x int", state="n int")
    said = failure(frame, tmp_path / "checkpoint")
    assert "broken failed on" in said
    assert 'raise LookupError("on purpose")' in said


def test_output_is_cast_to_the_declared_schema(orders, tmp_path):
    def mixed(rows, states):
        import pyarrow as pa

        columns = [rows["user"].cast(pa.large_string()), rows["amount"].cast(pa.int8()), rows["amount"]]
        return None, pa.table(columns, ["user", "amount", "money"]).select(["money", "user", "amount"])

    frame = hf.group_by(orders.stream(), "user", partitions=1).apply_arrow(
        mixed, output="user string, amount long, money decimal(20,2)", state="n int"
    )
    assert outputs(frame.selectExpr("user", "amount", "string(money)"), tmp_path / "c") == [
        [("ann", 1, "1.00"), ("zoë", 0, "0.00")]
    ]


def apply_giving(orders, value, output, state="n int", new_state=None):
    def giving(key, rows, state):
        if new_state is not None:
            state.update(new_state)
        yield value

    return hf.group_by(orders.stream(), "user", partitions=1).apply(giving, output=output, state=state)


@pytest.mark.parametrize(
    ("value", "new_state", "said"),
    [
        (("ann", "many"), None, "output of .*giving: column 'amount' is bigint, and the value is str 'many'"),
        (("ann", 1.5), None, "column 'amount' is bigint, and the value is float 1.5"),
        (("ann",), None, r"\(user string, amount bigint\) has 2 columns, and \('ann',\) has 1"),
        (7, None, "a row is a tuple, and this is int 7"),
        (("ann", 1), ("x",), "column 'n' is int, and the value is str 'x'"),
        (("ann", 1), (2**40,), "column 'n' is int, and the value is int 1099511627776"),
        (("ann", 1), (1, 2), r"the state is a tuple of \(n int\), not \(1, 2\)"),
    ],
)
def test_a_mismatch_names_the_column(orders, tmp_path, value, new_state, said):
    frame = apply_giving(orders, value, "user string, amount long", new_state=new_state)
    with pytest.raises(StreamingQueryException, match=said):
        run(frame, tmp_path / "checkpoint")


def test_schemas_that_cannot_be(orders):
    with pytest.raises(InvalidSchema, match="output|strng"):
        apply_giving(orders, (), "user strng")
    with pytest.raises(InvalidSchema, match="interval"):
        apply_giving(orders, (), "user string", state="i interval")
    with pytest.raises(InvalidSchema, match="'amout'"):
        hf.group_by(orders.stream(), "user").agg(n=hf.sum("amout"))
    with pytest.raises(InvalidSchema, match=r"agg\(n=hf.count\(\)\)"):
        hf.group_by(orders.stream(), "user").agg()


def test_requests_that_cannot_be(spark, orders):
    stream = orders.stream()
    for said, build in {
        "not a streaming one": lambda: hf.group_by(spark.range(3), "id"),
        "a DataFrame is needed; got str": lambda: hf.group_by("orders", "id"),
        "no column 'usr' to group by; there are user, amount": lambda: hf.group_by(stream, "usr"),
        r"several columns are called 'amount', 'user', so .*rename or drop all but one": lambda: hf.group_by(
            stream.select("amount", "amount", "user", "user", "tags"), "tags"
        ),
        "name the columns to group by": lambda: hf.group_by(stream),
        "name the columns by which rows are brought together": lambda: hf.map_partitions_with_state_store(
            stream, print, output="x int", key="k int", value="v int"
        ),
        r"array_sort\(map_entries\(tags\)\)": lambda: hf.group_by(stream, "tags"),
        "has the collation UTF8_LCASE": lambda: hf.group_by(stream.selectExpr("collate(user, 'UTF8_LCASE') k"), "k"),
        "a lambda. Give it name=": lambda: hf.group_by(stream, "user").apply(
            lambda key, rows, state: [], output="x int", state="n int"
        ),
        "cannot name an operator": lambda: hf.group_by(stream, "user", name=" ").agg(n=hf.count()),
        "are called 'mine'": lambda: hf.group_by(
            hf.group_by(stream, "user", name="mine").agg(n=hf.count()), "n", name="mine"
        ).agg(m=hf.count()),
    }.items():
        with pytest.raises(InvalidRequest, match=said):
            build()


@pytest.mark.parametrize("partitions", [0, -1, 1.5, "2", True])
def test_partitions_that_cannot_be(orders, partitions):
    with pytest.raises(InvalidRequest, match=f"partitions must be a whole number from 1 up; got {partitions!r}"):
        hf.group_by(orders.stream(), "user", partitions=partitions).agg(n=hf.count())


def test_one_name_on_two_branches_is_refused_by_the_query(orders, tmp_path):
    counted = [
        hf.group_by(orders.stream(), "user", partitions=1, name="mine", isolate=True).agg(n=hf.count())
        for _ in range(2)
    ]
    with pytest.raises((InvalidRequest, StreamingQueryException), match="are called 'mine'"):
        run(counted[0].union(counted[1]), tmp_path / "checkpoint")


CONNECT = """
from pyspark.sql import SparkSession
import holdfast as hf

spark = SparkSession.builder.remote("local[1]").getOrCreate()
stream = spark.readStream.format("rate").load()
try:
    hf.group_by(stream, "value")
except hf.errors.InvalidRequest as refused:
    print("refused:", refused)
"""


def test_frames_of_spark_connect_are_refused():
    # What Spark Connect gives is known by its module, so that its packages need not be there.
    remote = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(InvalidRequest, match=r"without remote\(…\) and SPARK_REMOTE"):
        hf.group_by(remote, "value")


def test_spark_connect_is_refused(tmp_path):
    script = tmp_path / "connect.py"
    script.write_text(CONNECT)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=240, cwd=tmp_path, check=False
    )
    assert "refused: Spark Connect runs the driver elsewhere" in done.stdout, done.stderr[-2000:]
