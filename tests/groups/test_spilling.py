"""Partitions larger than the memory they may use."""

import os
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from group_operator import Operator, batch

from holdfast.errors import Unavailable
from holdfast.groups import AggregatePlan, ArrowFunctionPlan, RowFunctionPlan, Spool
from holdfast.groups import aggregates as hf
from holdfast.groups.buckets import Buckets
from holdfast.rows import arrow_schema

ROWS = "user string, at long"
SCHEMA = arrow_schema(ROWS)


def numbered(count, users, rows_per_batch=500):
    rng = np.random.default_rng(count)
    table = pa.table({"user": [f"u{n}" for n in rng.integers(0, users, count)], "at": pa.array(range(count))})
    return table.cast(SCHEMA).to_batches(max_chunksize=rows_per_batch)


@pytest.mark.parametrize("limit", [0, 3000, 1 << 30])
def test_a_spool_gives_back_what_was_put_in_order(tmp_path, limit):
    given = numbered(3000, 10)
    with Spool(limit, str(tmp_path)) as spool:
        for each in given:
            spool.append(each)
        assert spool.nbytes == sum(each.nbytes for each in given)
        assert list(spool.drain()) == given
        assert list(spool.drain()) == []
        spool.append(given[0])
        assert list(spool.drain()) == given[:1]


def test_an_empty_spool(tmp_path):
    with Spool(0, str(tmp_path)) as spool:
        assert list(spool.drain()) == []


def open_files(folder):
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return [link for link in links if os.path.lexists(link) and os.readlink(link).startswith(f"{folder}/")]


def test_files_have_no_names_and_are_closed(tmp_path):
    spool = Spool(0, str(tmp_path))
    spool.append(numbered(10, 1)[0])
    assert list(tmp_path.iterdir()) == []
    assert len(open_files(tmp_path)) == 1
    spool.close()
    spool.close()
    assert open_files(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    spool = Spool(0, str(tmp_path / "missing"))
    with pytest.raises(Unavailable, match="missing.*choose another folder"):
        spool.append(numbered(10, 1)[0])


@pytest.mark.parametrize(("limit", "users"), [(1 << 30, 50), (20_000, 50), (2_000, 200), (500, 1)])
def test_buckets_keep_keys_together_and_their_rows_in_order(tmp_path, limit, users):
    buckets = Buckets(limit, str(tmp_path), arrow_schema("user string"))
    for each in numbered(20_000, users):
        buckets.add(each)
    assert bool(open_files(tmp_path)) == (limit < 1 << 30)
    owner, seen = {}, []
    for number, part in enumerate(buckets.drain()):
        for user in set(part["user"].to_pylist()):
            assert owner.setdefault(user, number) == number
            at = part.filter(pa.compute.equal(part["user"], user))["at"].to_pylist()
            assert at == sorted(at)
        seen += part["at"].to_pylist()
    assert sorted(seen) == list(range(20_000))
    buckets.close()
    assert open_files(tmp_path) == []


def test_buckets_are_of_similar_size(tmp_path):
    buckets = Buckets(300_000, str(tmp_path), arrow_schema("user string, n long"))
    table = pa.table({"user": ["same"] * 64_000, "n": pa.array(range(64_000))})
    for each in table.to_batches(max_chunksize=4000):
        buckets.add(each)
    sizes = [part.num_rows for part in buckets.drain()]
    assert len(sizes) == 64
    assert max(sizes) < 1200


def per_key(key, rows, state):
    ats = [row.at for row in rows]
    state.update((len(ats) + state.get((0,))[0],))
    yield key[0], state.get().n, ats[-1]


def per_table(rows, states):
    counts = rows.group_by("user").aggregate([("at", "count"), ("at", "max")])
    both = states.join(counts, "user")
    n = pa.compute.add(pa.compute.fill_null(both["n"], 0), both["at_count"])
    return pa.table({"user": both["user"], "n": n}), pa.table({"user": both["user"], "n": n, "at": both["at_max"]})


OUTPUT = "user string, n long, at long"
PLANS = {
    "agg": AggregatePlan(["user"], ROWS, {"n": hf.count(), "at": hf.max("at")}, ansi=True),
    "apply_arrow": ArrowFunctionPlan(["user"], ROWS, "n long", OUTPUT, per_table),
    "apply": RowFunctionPlan(["user"], ROWS, "n long", OUTPUT, per_key),
}


@pytest.mark.parametrize(("name", "limit"), [("agg", 30_000), ("apply_arrow", 300_000), ("apply", 300_000)])
def test_engines_give_the_same_through_disk(tmp_path, name, limit):
    work = numbered(200_000, 5000, 10_000)
    expected = Counter(user for each in work for user in each["user"].to_pylist())
    spilling = Operator(PLANS[name], tmp_path, memory_limit=limit)
    for round_ in (1, 2):
        rows = spilling.run(*work)
        assert {row["user"]: row["n"] for row in rows} == {user: n * round_ for user, n in expected.items()}
        assert len(rows) == len(expected)
    assert open_files(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", PLANS)
def test_a_failed_task_leaves_no_files(tmp_path, name):
    with PLANS[name].engine(1000, str(tmp_path)) as engine:
        for each in numbered(200_000, 5000, 10_000):
            engine.consume(each)
        assert open_files(tmp_path)
    assert open_files(tmp_path) == []


def test_aggregates_of_few_keys_need_no_disk(tmp_path):
    with PLANS["agg"].engine(100_000, str(tmp_path)) as engine:
        for _ in range(10):
            for each in numbered(200_000, 100, 50_000):
                engine.consume(each)
        assert open_files(tmp_path) == []


def test_few_rows_that_are_large_are_not_all_held(tmp_path):
    plan = AggregatePlan(["user"], "user string, text string", {"text": hf.max("text")}, ansi=True)
    large = [batch("user string, text string", (f"u{n}", f"{n}" * 1_000_000)) for n in range(10)]
    with plan.engine(2_000_000, str(tmp_path)) as engine:
        for each in large:
            engine.consume(each)
        assert open_files(tmp_path)
    rows = Operator(plan, tmp_path, memory_limit=2_000_000).run(*large)
    assert sorted((row["user"], row["text"][:1]) for row in rows) == [(f"u{n}", f"{n}") for n in range(10)]


def test_one_key_larger_than_the_memory(tmp_path):
    one = Operator(PLANS["apply"], tmp_path, memory_limit=10_000)
    work = batch(ROWS, *(("a", at) for at in range(20_000)))
    rows = one.run(work, batch(ROWS, ("b", 1)), work)
    assert sorted((row["user"], row["n"], row["at"]) for row in rows) == [("a", 40_000, 19_999), ("b", 1, 1)]
