"""Operators wherever they are in a query's plan, and beside whatever else keeps state there."""

from uuid import UUID

import pytest
from order_totals import PARTITION_0, failure_of, orders, state_of, totals, versions, wait_for
from pyspark.sql import functions as sf
from streaming_jobs import outputs, run

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.ids import StateStoreId, StateStoreProviderId

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _few_partitions(spark):
    """Of Spark's own operators."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.unset("spark.sql.shuffle.partitions")


@pytest.fixture
def source(spark, tmp_path):
    return orders(spark, tmp_path / "orders")


@pytest.fixture
def others(spark, tmp_path):
    """Rows of another stream, which look like totals."""
    others = orders(spark, tmp_path / "others")
    others.add(("other", 1))
    others.add(("other", 2))
    return others


def like_totals(others):
    return others.stream().selectExpr("user", "0L as n", "amount as total")


def test_a_batch_of_which_nothing_is_left_makes_a_version(source, tmp_path):
    source.add(("u0", 1), ("u1", 10))
    source.add(("u0", -1))
    source.add(("u0", 2))
    positive = totals(source.stream().where("amount > 0"))
    assert outputs(positive, tmp_path / "checkpoint") == [[("u0", 1, 1), ("u1", 1, 10)], [], [("u0", 2, 3)]]
    assert versions(tmp_path / "checkpoint") == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("anchored", [False, True])
def test_a_side_of_a_union_without_rows_makes_a_version(source, others, tmp_path, anchored, monkeypatch):
    monkeypatch.setattr("holdfast.spark.operator.needs_anchor", lambda frame: anchored)
    source.add(("u0", 1), ("u1", 10))
    both = totals(source.stream(), isolate=True).unionByName(like_totals(others))
    assert outputs(both, tmp_path / "checkpoint")[1] == [("other", 0, 2)]
    source.add(("u0", 2))
    assert outputs(both, tmp_path / "checkpoint") == [[("u0", 2, 3)]]
    assert versions(tmp_path / "checkpoint") == [[1, 2, 3], [1, 2, 3]]


def below_union(frame, others):
    return like_totals(others).unionByName(frame)


def below_coalesce(frame, others):
    return frame.coalesce(1)


@pytest.mark.parametrize("below", [below_union, below_coalesce])
@pytest.mark.parametrize("rows", [[("u0", 1), ("u1", 10)], [(PARTITION_0, 1)]], ids=["all partitions", "one"])
def test_an_operator_whose_tasks_have_other_numbers_says_what_to_do(source, others, tmp_path, below, rows):
    source.add(*rows)
    refused = failure_of(below(totals(source.stream()), others), tmp_path / "checkpoint")
    assert "coalesce" in refused
    assert "isolate=True, which puts a shuffle in between" in refused
    isolated = below(totals(source.stream(), isolate=True), others)
    found = outputs(isolated, tmp_path / "checkpoint")[0]
    assert [row for row in found if row[0] != "other"] == [(user, 1, amount) for user, amount in rows]
    assert state_of(tmp_path / "checkpoint") == {(user,): (1, amount) for user, amount in rows}


def test_beside_operators_of_sparks_own(source, tmp_path):
    source.add(("u0", 1), ("u0", 1), ("u1", 10))
    source.add(("u0", 1), ("u0", 2), ("u1", 20))
    distinct = totals(source.stream().dropDuplicates(["user", "amount"]))
    limited = distinct.limit(10)
    assert outputs(limited, tmp_path / "checkpoint") == [
        [("u0", 1, 1), ("u1", 1, 10)],
        [("u0", 2, 3), ("u1", 2, 30)],
    ]
    assert {path.name for path in (tmp_path / "checkpoint" / "state").iterdir()} == {"0", "1", "1000"}
    source.add(("u0", 2), ("u0", 3), ("u1", 10))
    assert outputs(limited, tmp_path / "checkpoint") == [[("u0", 3, 6)]]
    assert state_of(tmp_path / "checkpoint", "--operator", "1000") == {("u0",): (3, 6), ("u1",): (2, 30)}


def test_before_an_aggregation_of_sparks_own(source, tmp_path):
    source.add(("u0", 1), ("u1", 10))
    source.add(("u0", 2))
    counted = totals(source.stream()).groupBy("user").count()
    _, batches = run(counted, tmp_path / "checkpoint", "update")
    assert [sorted(batch) for batch in batches] == [[("u0", 1), ("u1", 1)], [("u0", 2)]]
    assert state_of(tmp_path / "checkpoint", "--operator", "1000") == {("u0",): (2, 3), ("u1",): (1, 10)}


def without_repeats(others):
    """With a watermark, so that Spark adds batches without data."""
    timed = others.stream().selectExpr("user", "amount", "timestamp_seconds(amount * 86400) as at")
    return timed.withWatermark("at", "1 day").dropDuplicates(["user", "at"])


@pytest.mark.parametrize("kind", ["dropDuplicates", "groupBy"])
def test_an_operator_of_sparks_own_on_another_branch(source, spark, tmp_path, kind):
    others = orders(spark, tmp_path / "others")
    if kind == "groupBy":
        theirs, mode = others.stream().groupBy("user").agg(sf.count("*"), sf.sum("amount")), "update"
    else:
        theirs, mode = without_repeats(others).selectExpr("user", "0L as n", "amount as total"), "append"
    both = totals(source.stream(), isolate=True).union(theirs)

    def batch():
        """One, and those without data that may follow it."""
        return [sorted(rows) for rows in run(both, tmp_path / "checkpoint", mode)[1] if rows]

    source.add(("u0", 1), ("u1", 10))
    others.add(("other", 5), ("other", 5))
    assert batch() == [[("other", 2, 10) if kind == "groupBy" else ("other", 0, 5), ("u0", 1, 1), ("u1", 1, 10)]]
    source.add(("u0", 2))
    others.add(("other", 5), ("other", 6))
    assert batch() == [[("other", 4, 21) if kind == "groupBy" else ("other", 0, 6), ("u0", 2, 3)]]
    assert state_of(tmp_path / "checkpoint", "--operator", "1000") == {("u0",): (2, 3), ("u1",): (1, 10)}
    assert {path.name for path in (tmp_path / "checkpoint" / "state").iterdir()} == {"0", "1000"}


def test_two_queries_of_one_frame_have_state_of_their_own(source, tmp_path):
    source.add(("u0", 1), ("u1", 10))
    frame = totals(source.stream())
    first = outputs(frame, tmp_path / "first")
    source.add(("u0", 2))
    assert outputs(frame, tmp_path / "second") == [*first, [("u0", 2, 3)]]
    assert state_of(tmp_path / "first") == {("u0",): (1, 1), ("u1",): (1, 10)}
    assert outputs(frame, tmp_path / "first") == [[("u0", 2, 3)]]


def test_one_operator_after_another(source, tmp_path):
    source.add(("u0", 1), ("u1", 10))
    source.add(("u0", 2))
    inner = totals(source.stream()).selectExpr("user", "total as amount")
    with pytest.raises(InvalidRequest, match=r"are called 'running_total\(user\)'.*give each a name"):
        totals(inner)
    chained = totals(inner, name="totals of totals")
    assert outputs(chained, tmp_path / "checkpoint") == [[("u0", 1, 1), ("u1", 1, 10)], [("u0", 2, 4)]]
    assert state_of(tmp_path / "checkpoint", "--operator", "1000") == {("u0",): (2, 3), ("u1",): (1, 10)}
    assert state_of(tmp_path / "checkpoint", "--operator", "1001") == {("u0",): (2, 4), ("u1",): (1, 10)}


def test_two_branches_of_one_stream(source, tmp_path):
    source.add(("u0", 1), ("u1", 10))
    source.add(("u1", 20))
    small = totals(source.stream().where("amount < 5"), name="small", isolate=True)
    large = totals(source.stream().where("amount > 5"), name="large", isolate=True)
    found = outputs(small.unionByName(large), tmp_path / "checkpoint")
    assert found == [[("u0", 1, 1), ("u1", 1, 10)], [("u1", 2, 30)]]
    assert [versions(tmp_path / "checkpoint", operator) for operator in (1000, 1001)] == [[[1, 2], [1, 2]]] * 2


def test_asynchronous_progress_is_refused(spark, tmp_path):
    stream = spark.readStream.format("rate").load().selectExpr("'u0' as user", "value as amount")
    query = (
        totals(stream)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("asyncProgressTrackingEnabled", "true")
        .start()
    )
    try:
        wait_for(lambda: not query.isActive, "the refusal")
        assert "remove the option asyncProgressTrackingEnabled" in str(query.exception())
    finally:
        query.stop()


def test_a_continuous_trigger_is_refused(spark, tmp_path):
    stream = spark.readStream.format("rate").load().selectExpr("'u0' as user", "value as amount")
    writer = totals(stream).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="(?i)continuous"):  # by Spark itself, whose types of errors differ
        writer.trigger(continuous="1 second").start()


def test_a_query_that_is_stopped_gives_its_stores_back(spark, source, tmp_path):
    from holdfast.spark.session import Driver

    source.add(("u0", 1), ("u1", 10))
    stream = totals(source.stream())
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    coordinator = Driver.of(spark).coordinator
    store_id = StateStoreId(f"file:{tmp_path}/checkpoint/state", 1000, 0)
    provider_id = StateStoreProviderId(store_id, UUID(query.runId))
    query.processAllAvailable()
    assert coordinator.get_location(provider_id).startswith("executor_")
    query.stop()
    wait_for(lambda: coordinator.get_location(provider_id) is None, "the end of the run")
    assert [batch["batchId"] for batch in hf.state_operators(query)] == [0], "what it did is still known"
