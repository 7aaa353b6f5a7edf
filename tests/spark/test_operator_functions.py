"""Every kind of operator in a real streaming query."""

import datetime as dt
import json
import time
from uuid import UUID

import pytest
from click.testing import CliRunner
from streaming_jobs import Input, outputs, run

import holdfast as hf
from holdfast.cli.main import main
from holdfast.spark.session import Driver

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(spark, tmp_path):
    source = Input(spark, tmp_path / "orders", "user string, amount long")
    source.add(("ann", 1), ("bob", 10), ("ann", 2))
    source.add(("bob", 20), ("cid", 100))
    source.add(("ann", 4), ("cid", -100))
    return source


TOTALS = [
    [("ann", 2, 3), ("bob", 1, 10)],
    [("bob", 2, 30), ("cid", 1, 100)],
    [("ann", 3, 7), ("cid", 2, 0)],
]


def test_apply(orders, tmp_path):
    def running_total(key, rows, state):
        n, total = state.get((0, 0))
        for row in rows:
            n, total = n + 1, total + row.amount
        state.update((n, total))
        yield (*key, n, total)

    totals = hf.group_by(orders.stream(), "user", partitions=2).apply(
        running_total, output="user string, n long, total long", state="n long, total long"
    )
    assert outputs(totals, tmp_path / "checkpoint") == TOTALS


def test_apply_removes_state_and_may_put_out_nothing(orders, tmp_path):
    def until_two(key, rows, state):
        n = (state.get().n if state.exists else 0) + len(list(rows))
        if n < 2:
            state.update((n,))
            return None
        state.remove()
        return [(key.user, state.exists)]

    seen_twice = hf.group_by(orders.stream(), "user", partitions=2).apply(
        until_two, output="user string, left boolean", state="n int"
    )
    assert outputs(seen_twice, tmp_path / "checkpoint") == [[("ann", False)], [("bob", False)], [("cid", False)]]
    assert state_rows(orders, tmp_path / "checkpoint") == {"ann": (1,)}


def test_apply_arrow(orders, tmp_path):
    def running_total(rows, states):
        import pyarrow as pa
        import pyarrow.compute as pc

        sums = rows.group_by("user").aggregate([("amount", "count"), ("amount", "sum")])
        joined = states.join(sums, "user")
        new = pa.table(
            {
                "user": joined["user"],
                "n": pc.add(pc.coalesce(joined["n"], 0), joined["amount_count"]),
                "total": pc.add(pc.coalesce(joined["total"], 0), joined["amount_sum"]),
            }
        )
        return new.append_column("remove", pc.equal(new["total"], 0)), new

    totals = hf.group_by(orders.stream(), "user", partitions=2).apply_arrow(
        running_total, output="user string, n long, total long", state="n long, total long"
    )
    assert outputs(totals, tmp_path / "checkpoint") == TOTALS
    assert state_rows(orders, tmp_path / "checkpoint") == {"ann": (3, 7), "bob": (2, 30)}


def test_agg(orders, tmp_path):
    grouped = hf.group_by(orders.stream(), "user", partitions=2)
    totals = grouped.agg(n=hf.count(), total=hf.sum("amount"))
    assert totals.schema.simpleString() == "struct<user:string,n:bigint,total:bigint>"
    assert outputs(totals, tmp_path / "checkpoint") == TOTALS


def test_one_raw_store(orders, tmp_path):
    def new_users(store, batches):
        import pyarrow as pa
        import pyarrow.compute as pc

        from holdfast.rows import RowCodec

        keys, values = RowCodec("user string"), RowCodec("first_amount long")
        for batch in batches:
            first = pa.table(batch).group_by("user", use_threads=False).aggregate([("amount", "first")])
            encoded = keys.encode(first.select(["user"]))
            fresh = pc.is_null(store.get_array(encoded))
            first, encoded = first.filter(fresh), encoded.filter(fresh)
            amounts = first.select(["amount_first"]).rename_columns(["first_amount"])
            store.put_array(encoded, values.encode(amounts))
            yield first.select(["user"])

    fresh = hf.map_partitions_with_state_store(
        orders.stream(),
        new_users,
        "user",
        output="user string",
        key="user string",
        value="first_amount long",
        partitions=2,
    )
    assert outputs(fresh, tmp_path / "checkpoint") == [[("ann",), ("bob",)], [("cid",)], []]
    assert state_rows(orders, tmp_path / "checkpoint") == {"ann": (1,), "bob": (10,), "cid": (100,)}


def test_several_raw_stores(orders, tmp_path):
    def largest_and_count(stores, batches):
        import pyarrow as pa

        from holdfast.rows import RowCodec

        keys, numbers = RowCodec("user string"), RowCodec("number long")

        def replace(name, key, new):
            old = stores[name].get(key)
            number = new(None if old is None else numbers.decode_one(old)[0])
            stores[name].put(key, numbers.encode_one((number,)))
            return number

        rows = []
        for batch in batches:
            for user, amount in zip(batch["user"].to_pylist(), batch["amount"].to_pylist(), strict=True):
                key = keys.encode_one((user,))
                largest = replace("largest", key, lambda old, new=amount: new if old is None else max(old, new))
                rows.append((user, largest, replace("counts", key, lambda old: (old or 0) + 1)))
        if not rows:
            return None
        return [pa.table(list(zip(*rows, strict=True)), ["user", "largest", "n"])]

    found = hf.map_partitions_with_state_store(
        orders.stream(),
        largest_and_count,
        "user",
        output="user string, largest long, n long",
        stores={"largest": ("user string", "number long"), "counts": ("user string", "number long")},
        partitions=2,
    )
    query, batches = run(found, tmp_path / "checkpoint")
    assert [sorted(batch) for batch in batches] == [
        [("ann", 1, 1), ("ann", 2, 2), ("bob", 10, 1)],
        [("bob", 20, 2), ("cid", 100, 1)],
        [("ann", 4, 3), ("cid", 100, 2)],
    ]
    last = hf.state_operators(query)[-1]
    assert (last["numStateStoreInstances"], last["numShufflePartitions"], last["numRowsTotal"]) == (4, 2, 6)
    shown = CliRunner().invoke(main, ["cat", str(tmp_path / "checkpoint"), "--store", "counts", "--format", "json"])
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert {row["key"]["user"]: row["value"]["number"] for row in rows} == {"ann": 3, "bob": 2, "cid": 2}


@pytest.mark.parametrize(
    "given", [{}, {"key": "k int"}, {"key": "k int", "value": "v int", "stores": {"a": ("k int", "v int")}}]
)
def test_raw_stores_have_to_be_said(orders, given):
    with pytest.raises(hf.errors.InvalidRequest, match="either key= and value=, or stores="):
        hf.map_partitions_with_state_store(orders.stream(), print, "user", output="user string", **given)


def test_state_operators(spark, orders, tmp_path):
    def latest(key, rows, state):
        for row in rows:
            amount = row.amount
        if amount < 0:
            state.remove()
        else:
            state.update((amount,))

    frame = hf.group_by(orders.stream(), "user", partitions=3).apply(latest, output="user string", state="amount long")
    query, _ = run(frame, tmp_path / "checkpoint")
    found = hf.state_operators(query)
    assert [(each["batchId"], each["operatorId"], each["operatorName"]) for each in found] == [
        (batch, 1000, "latest(user)") for batch in range(3)
    ]
    assert [(each["numRowsTotal"], each["numRowsUpdated"], each["numRowsRemoved"]) for each in found] == [
        (2, 2, 0),
        (3, 2, 0),
        (2, 1, 1),
    ]
    for each in found:
        assert (each["numShufflePartitions"], each["numStateStoreInstances"]) == (3, 3)
        assert each["memoryUsedBytes"] > 0
        assert each["commitTimeMs"] > 0
        assert each["allUpdatesTimeMs"] >= 0
    assert found[-1]["customMetrics"]["loadedMapCacheHitCount"] >= 3
    assert found[-1]["customMetrics"]["stateOnCurrentVersionSizeBytes"] > 0
    spark_fields = {"operatorName", "numRowsTotal", "numRowsUpdated", "numRowsRemoved", "allUpdatesTimeMs"}
    spark_fields |= {"commitTimeMs", "memoryUsedBytes", "numShufflePartitions", "numStateStoreInstances"}
    assert set(found[0]) == spark_fields | {"batchId", "operatorId", "customMetrics"}
    # The driver notices within a second that a run is over, and what it did is not forgotten with it.
    store = hf.StateStoreId(f"file:{tmp_path}/checkpoint/state", 1000, 0)
    deadline = time.monotonic() + 60
    while Driver.of(spark).coordinator.get_location(hf.StateStoreProviderId(store, UUID(query.runId))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert hf.state_operators(query) == found


def test_a_query_without_our_operators_has_none(orders, tmp_path):
    query, batches = run(orders.stream(), tmp_path / "checkpoint")
    assert len(batches) == 3
    assert hf.state_operators(query) == []


def test_time_in_state(spark, tmp_path):
    source = Input(spark, tmp_path / "events", "user string, at timestamp")
    noon = dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone.utc)
    source.add(("ann", noon))
    source.add(("ann", noon + dt.timedelta(hours=1)))

    def clocks(key, rows, state):
        yield key.user, state.watermark, state.batch_time

    started = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=1)
    for name, stream, watermark in [
        ("with", source.stream().withWatermark("at", "10 minutes"), noon - dt.timedelta(minutes=10)),
        ("without", source.stream(), None),
    ]:
        frame = hf.group_by(stream, "user", partitions=1).apply(
            clocks, output="user string, watermark timestamp, batch_time timestamp", state="nothing int"
        )
        # As text: PySpark gives times in the zone of the driver.
        shown = frame.selectExpr("cast(watermark as string)", "batch_time")
        first, second = outputs(shown, tmp_path / name)[:2]
        assert first[0][0] is None
        assert second[0][0] == (watermark and watermark.strftime("%Y-%m-%d %H:%M:%S"))
        assert started < first[0][1].astimezone(dt.timezone.utc) < second[0][1].astimezone(dt.timezone.utc)


def state_rows(orders, checkpoint):
    """What is in state, by Spark's own reader."""
    frame = orders.spark.read.format("statestore").option("operatorId", 1000).load(str(checkpoint))
    return {row.key.user: tuple(row.value) for row in frame.collect()}
