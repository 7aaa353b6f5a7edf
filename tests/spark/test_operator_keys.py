"""Keys of every type, and columns of any name."""

import pytest
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType
from streaming_jobs import Input, outputs, run

import holdfast as hf

pytestmark = pytest.mark.spark

# Values as SQL; the first two differ from all others, and a null is added to each.
KEYS = {
    "boolean": ["true", "false"],
    "tinyint": ["-128Y", "127Y"],
    "smallint": ["-32768S", "32767S"],
    "int": ["-1", "2147483647"],
    "bigint": ["-1L", "9223372036854775807L"],
    "float": ["float('NaN')", "float('Infinity')", "float(0.0)", "float('-0.0')"],
    "double": ["double('NaN')", "double('-Infinity')", "0.0D", "double('-0.0')"],
    "decimal(10,2)": ["-0.01BD", "99999999.99BD"],
    "decimal(38,4)": ["1234567890123456789012345678901234.5678BD", "-0.0001BD"],
    "string": ["''", "'a'", "'é\\\\u0000'", "repeat('x', 100000)"],
    "binary": ["X''", "X'00'", "X'FF00'"],
    "date": ["date'1900-01-01'", "date'9999-12-31'"],
    "timestamp": ["timestamp'1600-01-01 00:00:00.000001Z'", "timestamp'2024-02-29 12:00:00Z'"],
    "timestamp_ntz": ["timestamp_ntz'0001-01-01 00:00:00'", "timestamp_ntz'2024-02-29 12:00:00.5'"],
    "array<double>": ["array(double('NaN'))", "array()", "array(0.0D, null)", "array(double('-0.0'), null)"],
    "struct<a:string,b:struct<c:float>>": [
        "named_struct('a', '', 'b', named_struct('c', float('-0.0')))",
        "named_struct('a', null, 'b', null)",
        "named_struct('a', '', 'b', named_struct('c', float(0.0)))",
    ],
    "array<struct<a:array<binary>>>": ["array(named_struct('a', array(X'01')))", "array(named_struct('a', array()))"],
}


def with_keys(frame):
    """A column per type, whose value follows from the number of the row."""
    return frame.selectExpr(
        "n",
        *(
            f"element_at(array({', '.join(f'cast({value} as {kind})' for value in [*values, 'null'])}),"
            f" cast(n % {len(values) + 1} as int) + 1) as k{at}"
            for at, (kind, values) in enumerate(KEYS.items())
        ),
    )


def with_number(frame):
    """The schema of a frame and a number."""
    return StructType([*frame.schema.fields, StructField("n", LongType())])


def counted(rows):
    """Counts by key; as text, because NaN is not equal to itself."""
    found = {repr(tuple(row)[:-1]): row[-1] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture
def numbers(spark, tmp_path):
    source = Input(spark, tmp_path / "numbers", "n long")
    source.add(*((n,) for n in range(10)))
    source.add(*((n,) for n in range(10, 23)))
    return source


@pytest.mark.parametrize("at", range(len(KEYS)), ids=list(KEYS))
def test_every_type(spark, numbers, tmp_path, at):
    key = f"k{at}"

    def count(key, rows, state):
        (n,) = state.get((0,))
        state.update((n + sum(1 for _ in rows),))
        yield (*key, *state.get())

    stream = with_keys(numbers.stream()).select(key)
    grouped = hf.group_by(stream, key, partitions=3)
    ours = grouped.apply(count, output=with_number(stream), state="n long")
    newest = {}
    for batch in run(ours, tmp_path / "checkpoint")[1]:
        newest |= counted(batch)
    expected = with_keys(spark.range(23).toDF("n")).groupBy(key).count().collect()
    assert newest == counted(expected)


@pytest.mark.parametrize("kind", ["apply_arrow", "agg"])
def test_all_types_in_one_key(spark, numbers, tmp_path, kind):
    def count_batches(rows, states):
        import pyarrow.compute as pc

        seen = pc.add(pc.coalesce(states["n"], 0), 1)
        new = states.set_column(states.schema.get_field_index("n"), "n", seen)
        return new, new.drop_columns("exists")

    keys = ["j", *(f"k{at}" for at in range(len(KEYS)))]
    stream = with_keys(numbers.stream()).withColumn("j", sf.col("n") % 4).select(*keys)
    grouped = hf.group_by(stream, *keys, partitions=2)
    if kind == "agg":
        ours, counts = grouped.agg(n=hf.count()), sf.count("*")
    else:
        ours = grouped.apply_arrow(count_batches, output=with_number(stream), state="n long")
        counts = sf.count_distinct(sf.col("n") < 10)
    newest = {}
    for batch in run(ours, tmp_path / "checkpoint")[1]:
        newest |= counted(batch)
    expected = with_keys(spark.range(23).toDF("n")).withColumn("j", sf.col("n") % 4).groupBy(*keys).agg(counts)
    assert newest == counted(expected.collect())
    assert len(newest) > 12


ODD = ["a.b", "two words", "tick`s", "größe", "Ünï.cödé `x`", "数", "__len__", "select", "1st", "index", "c0"]


@pytest.mark.parametrize("kind", ["apply", "apply_arrow", "agg", "raw"])
def test_odd_names_of_columns(spark, numbers, tmp_path, kind):
    def last(key, rows, state):
        for row in rows:
            values = tuple(row[name] for name in odd)
        state.update(values)
        yield (*key, *state.get())

    def last_in_arrow(rows, states):
        return states, states.drop_columns("exists").select([*keys, *odd[2:]]).rename_columns([*keys, *odd[2:]])

    odd = list(ODD)
    keys = odd[:2]
    stream = numbers.stream().toDF(odd[0])
    for name in odd[1:]:
        stream = stream.withColumn(name, stream[f"`{odd[0]}`"] % 2)
    quoted = ["`" + name.replace("`", "``") + "`" for name in odd]
    types = ", ".join(f"{name} long" for name in quoted)
    key_types = ", ".join(f"`key {at}` long" for at in range(2))
    if kind == "apply":
        ours = hf.group_by(stream, *keys, partitions=2).apply(last, output=f"{key_types}, {types}", state=types)
    elif kind == "apply_arrow":
        state = ", ".join(f"{name} long" for name in quoted[2:])
        ours = hf.group_by(stream, *keys, partitions=2).apply_arrow(last_in_arrow, output=stream.schema, state=state)
    elif kind == "agg":
        aggregates = {name + "'s last": hf.last(name) for name in odd[2:]}
        ours = hf.group_by(stream, *keys, partitions=2).agg(**aggregates)
        assert ours.columns == [*keys, *aggregates]
    else:

        def through(store, batches):
            yield from batches

        ours = hf.map_partitions_with_state_store(
            stream, through, *keys, output=stream.schema, key=types, value=types, partitions=2
        )
    first, second = outputs(ours, tmp_path / "checkpoint")
    assert [row[0] for row in first] == list(range(10))
    assert [row[0] for row in second] == list(range(10, 23))
    if kind != "apply_arrow":
        assert all(set(row[2:]) <= {row[0], row[0] % 2} for row in first + second)


def test_columns_of_one_name(numbers):
    stream = numbers.stream()
    twice = stream.select("n", (stream.n + 1).alias("n"))
    with pytest.raises(hf.errors.HoldfastError, match="'n'"):
        hf.group_by(twice, "n", partitions=1).agg(c=hf.count())
