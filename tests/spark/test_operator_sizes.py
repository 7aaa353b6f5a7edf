"""Large values, many rows of one key, skew, and partitions that do not fit into memory."""

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest
from order_totals import failure_of
from pyspark.sql import functions as sf
from streaming_jobs import Input, outputs, run

import holdfast as hf

pytestmark = pytest.mark.spark


def test_values_of_ten_megabytes(spark, tmp_path):
    source = Input(spark, tmp_path / "texts", "k int, text string")
    large = "x" * 10_000_000
    source.add((1, large), (2, ""), (3, "small"))
    source.add((1, "y"), (2, large))

    def longer(key, rows, state):
        (old,) = state.get(("",))
        (text,) = [row.text for row in rows]
        state.update((old + text,))
        yield key.k, len(old), len(old + text), old + text

    frame = hf.group_by(source.stream(), "k", partitions=1).apply(
        longer, output="k int, before int, after int, text string", state="text string"
    )
    first, second = outputs(frame.selectExpr("k", "before", "after", "length(text)", "right(text, 1)"), tmp_path / "c")
    n = len(large)
    assert first == [(1, 0, n, n, "x"), (2, 0, 0, 0, ""), (3, 0, 5, 5, "l")]
    assert second == [(1, n, n + 1, n + 1, "y"), (2, 0, n, n, "x")]


def test_a_million_rows_of_one_key_beside_small_ones(spark, tmp_path):
    source = Input(spark, tmp_path / "rows", "k string, x long")
    rows = 1_000_000
    skewed = pa.table({"k": ["big"] * rows + [f"k{at}" for at in range(100)], "x": [1] * rows + list(range(100))})
    source.add_table(skewed)
    source.add(("big", 5), ("k7", 1))

    def total(key, rows, state):
        (n,) = state.get((0,))
        n += sum(row.x for row in rows)
        state.update((n,))
        yield key.k, n

    stream = source.stream()
    for name, frame in {
        "apply": hf.group_by(stream, "k", partitions=2).apply(total, output="k string, n long", state="n long"),
        "agg": hf.group_by(stream, "k", partitions=2).agg(n=hf.sum("x")),
    }.items():
        first, second = outputs(frame, tmp_path / name)
        assert first == sorted([("big", rows), *((f"k{at}", at) for at in range(100))])
        assert second == [("big", rows + 5), ("k7", 8)]


@pytest.mark.parametrize("kind", ["apply", "apply_arrow", "agg", "raw"])
def test_a_partition_larger_than_memory(spark, tmp_path, kind):
    source = Input(spark, tmp_path / "rows", "k long, text string")
    rng = random.Random(5)
    for _ in range(2):
        rows = [(rng.randrange(2_000), "x" * rng.randrange(200)) for _ in range(10_000)]
        source.add(*rows)
    spills = tmp_path / "spills"
    spills.mkdir()

    def open_files():
        import os

        # They have no name any more, so that none is left behind whatever happens.
        return sum(
            os.readlink(file).startswith(folder)
            for file in map(str, Path("/proc/self/fd").iterdir())
            if os.path.islink(file)
        )

    def longest(key, rows, state):
        (n,) = state.get((0,))
        n = max(n, *(len(row.text) for row in rows), 0)
        state.update((n,))
        yield key.k, n, open_files()

    def longest_in_arrow(rows, states):
        import pyarrow as pa
        import pyarrow.compute as pc

        lengths = rows.append_column("n", pc.utf8_length(rows["text"]).cast("int64"))
        found = lengths.group_by("k").aggregate([("n", "max")])
        both = states.join(found, "k")
        new = pa.table({"k": both["k"], "n": pc.max_element_wise(both["n"], both["n_max"])})
        return new, new.append_column("files", pa.array([open_files()] * len(new), pa.int64()))

    def pass_on(store, batches):
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            lengths = pc.utf8_length(batch["text"]).cast("int64")
            files = pa.array([open_files()] * len(lengths), pa.int64())
            yield pa.table({"k": batch["k"], "n": lengths, "files": files})

    folder = str(spills)
    output = "k long, n long, files long"

    def operator():
        grouped = hf.group_by(source.stream(), "k", partitions=1)
        if kind == "apply":
            return grouped.apply(longest, output=output, state="n long")
        if kind == "apply_arrow":
            return grouped.apply_arrow(longest_in_arrow, output=output, state="n long")
        if kind == "agg":
            return grouped.agg(n=hf.max("text"), files=hf.count())
        return hf.map_partitions_with_state_store(
            source.stream(), pass_on, "k", output=output, key="k long", value="n long", partitions=1
        )

    expected = run(operator(), tmp_path / "in memory")[1]
    assert {row[2] for batch in expected for row in batch} == {0} or kind == "agg"
    spark.conf.set("spark.holdfast.operator.memoryLimit", "50k")
    spark.conf.set("spark.holdfast.operator.spillDir", folder)
    try:
        spilled = run(operator(), tmp_path / "spilled")[1]
    finally:
        spark.conf.unset("spark.holdfast.operator.memoryLimit")
        spark.conf.unset("spark.holdfast.operator.spillDir")
    for ours, theirs in zip(spilled, expected, strict=True):
        if kind == "agg":
            assert sorted(ours) == sorted(theirs)
        else:
            assert sorted(row[:2] for row in ours) == sorted(row[:2] for row in theirs)
            assert max(row[2] for row in ours) > 0, "there were files"
    assert os.listdir(folder) == []


def test_agg_beyond_memory_gives_what_spark_gives(spark, tmp_path):
    source = Input(spark, tmp_path / "rows", "k long, text string")
    rng = random.Random(7)
    for _ in range(2):
        source.add(*((rng.randrange(2_000), "x" * rng.randrange(200)) for _ in range(10_000)))
    spills = tmp_path / "spills"

    def aggregated():
        return hf.group_by(source.stream(), "k", partitions=1).agg(n=hf.count(), longest=hf.max("text"))

    def sparks():
        return source.stream().groupBy("k").agg(sf.count("*").alias("n"), sf.max("text").alias("longest"))

    spark.conf.set("spark.holdfast.operator.spillDir", str(spills))
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        expected = [sorted(batch) for batch in run(sparks(), tmp_path / "sparks", "update")[1]]
        # With enough memory the folder is not missed, and with little it is, while the input is taken.
        assert outputs(aggregated(), tmp_path / "in memory") == expected
        spark.conf.set("spark.holdfast.operator.memoryLimit", "50k")
        refused = failure_of(aggregated(), tmp_path / "spilled")
        assert f"could not be written to {spills}" in refused
        assert "in consume" in refused
        spills.mkdir()
        assert outputs(aggregated(), tmp_path / "spilled") == expected
    finally:
        for key in ("holdfast.operator.spillDir", "sql.shuffle.partitions", "holdfast.operator.memoryLimit"):
            spark.conf.unset(f"spark.{key}")
