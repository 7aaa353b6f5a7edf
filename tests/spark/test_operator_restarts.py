"""A query that is started again with other code goes on with its state, or says why it cannot."""

import re
import shutil

import pytest
from click.testing import CliRunner
from order_totals import STATE, TOTALS, failure_of, orders, state_of, totals, versions
from streaming_jobs import outputs

import holdfast as hf
from holdfast.cli.main import main as holdfast_command

pytestmark = pytest.mark.spark


@pytest.fixture
def source(spark, tmp_path):
    """Orders of which a query has read the first batch, and stopped."""
    source = orders(spark, tmp_path / "orders")
    source.add(("u0", 1), ("u1", 10))
    assert outputs(totals(source.stream()), tmp_path / "checkpoint") == [[("u0", 1, 1), ("u1", 1, 10)]]
    source.add(("u0", 2), ("u1", 20))
    return source


def went_on(frame, checkpoint):
    return outputs(frame, checkpoint) == [[("u0", 2, 3), ("u1", 2, 30)]] and versions(checkpoint) == [[1, 2], [1, 2]]


def test_a_backend_of_the_same_kind_goes_on_and_another_is_refused(source, tmp_path):
    refused = failure_of(totals(source.stream(), provider="memory"), tmp_path / "checkpoint")
    assert "of kind LOG, and memory is of kind VOLATILE, which keeps it elsewhere" in refused
    assert "or another one of kind LOG, or start with a new checkpoint" in refused
    same_kind = "holdfast_files.HDFSBackedStateStoreProvider"
    assert went_on(totals(source.stream(), provider=same_kind), tmp_path / "checkpoint")


def test_another_number_of_partitions_is_refused(source, tmp_path):
    refused = failure_of(totals(source.stream(), partitions=3), tmp_path / "checkpoint")
    assert "has 2 partitions, and the query asks for 3" in refused
    assert "so set it to 2 or start with a new checkpoint" in refused
    assert went_on(totals(source.stream()), tmp_path / "checkpoint")


def test_a_renamed_function_is_not_taken_for_a_new_one(source, tmp_path):
    def revenue(key, rows, state):
        n, total = state.get((0, 0))
        for row in rows:
            n, total = n + 1, total + row.amount
        state.update((n, total))
        yield (*key, n, total)

    def renamed(**options):
        return hf.group_by(source.stream(), "user", partitions=2, **options).apply(revenue, output=TOTALS, state=STATE)

    refused = failure_of(renamed(), tmp_path / "checkpoint")
    assert "has state of the operators 'running_total(user)', which this query does not have" in refused
    assert "the query has 'revenue(user)', of which there is no state" in refused
    assert "give it its old name with name='…'" in refused
    assert went_on(renamed(name="running_total(user)"), tmp_path / "checkpoint")


def test_other_code_goes_on_with_the_state(source, tmp_path):
    def running_total(key, rows, state):
        n, total = state.get((0, 0))
        state.update((n, total + 1000))
        yield (*key, n, total)

    changed = hf.group_by(source.stream(), "user", partitions=2).apply(running_total, output=TOTALS, state=STATE)
    assert outputs(changed, tmp_path / "checkpoint") == [[("u0", 1, 1), ("u1", 1, 10)]]
    assert state_of(tmp_path / "checkpoint") == {("u0",): (1, 1001), ("u1",): (1, 1010)}


def by(key, stream, **options):
    def running_total(key, rows, state):
        n, total = state.get((0, 0))
        for row in rows:
            n, total = n + 1, total + row.amount
        state.update((n, total))
        yield str(key[0]), n, total

    return hf.group_by(stream, key, partitions=2, **options).apply(running_total, output=TOTALS, state=STATE)


def test_a_renamed_key_column_needs_the_old_name(source, tmp_path):
    renamed = source.stream().withColumnRenamed("user", "customer")
    refused = failure_of(by("customer", renamed), tmp_path / "checkpoint")
    assert "the query has 'running_total(customer)', of which there is no state" in refused
    assert went_on(by("customer", renamed, name="running_total(user)"), tmp_path / "checkpoint")


def test_a_key_of_another_type_is_refused_and_both_are_shown(source, tmp_path):
    numbered = source.stream().selectExpr("cast(substr(user, 2) as int) as user", "amount")
    refused = failure_of(by("user", numbered), tmp_path / "checkpoint")
    assert re.search(r"(?s)user.*string.*user.*int", refused)
    assert went_on(totals(source.stream()), tmp_path / "checkpoint")


def follow(advice):
    """Remove the folder that an error says to remove."""
    folder = re.search(r"remove file:(\S+) and build it with start_empty=True", advice)[1]
    shutil.rmtree(folder)
    return folder


def test_an_operator_that_was_left_out_cannot_go_on_and_may_begin_anew(source, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    outputs(source.stream().selectExpr("user", "1L as n", "amount as total"), checkpoint)
    source.add(("u0", 3))
    refused = failure_of(totals(source.stream()), checkpoint)
    assert "Batch 1 did not leave the state of operator 'running_total(user)' behind in full" in refused
    assert "or the operator was not in the query" in refused
    assert follow(refused).endswith("/checkpoint/state/1000")
    anew = totals(source.stream(), start_empty=True)
    assert outputs(anew, checkpoint) == [[("u0", 1, 3)]]
    source.add(("u0", 4), ("u1", 40))
    assert outputs(anew, checkpoint) == [[("u0", 2, 7), ("u1", 1, 40)]]
    assert state_of(checkpoint) == {("u0",): (2, 7), ("u1",): (1, 40)}


def test_one_of_two_operators_is_left_out_and_comes_back(spark, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    source = orders(spark, tmp_path / "orders")

    def batch(*rows, both, **options):
        source.add(*rows)
        first = totals(source.stream(), name="first")
        again = first.selectExpr("user", "total as amount")
        return totals(again, name="second", **options) if both else first

    assert outputs(batch(("u0", 1), ("u1", 10), both=True), checkpoint) == [[("u0", 1, 1), ("u1", 1, 10)]]
    assert outputs(batch(("u0", 2), both=False), checkpoint) == [[("u0", 2, 3)]], "the other one goes on"
    refused = failure_of(batch(("u0", 3), both=True), checkpoint)
    assert "Batch 1 did not leave the state of operator 'second' behind in full" in refused
    assert follow(refused).endswith("/checkpoint/state/1001")
    # The batch that failed has run the first operator already; its result counts once.
    assert outputs(batch(("u1", 20), both=True, start_empty=True), checkpoint) == [[("u0", 1, 6)], [("u1", 1, 30)]]
    assert state_of(checkpoint, "--operator", "1000") == {("u0",): (3, 6), ("u1",): (2, 30)}
    assert state_of(checkpoint, "--operator", "1001") == {("u0",): (1, 6), ("u1",): (1, 30)}


def test_another_schema_of_the_state_is_refused_and_both_are_shown(source, tmp_path):
    def running_total(key, rows, state):
        state.update((sum(row.amount for row in rows),))
        return ()

    changed = hf.group_by(source.stream(), "user", partitions=2).apply(running_total, output=TOTALS, state="t double")
    refused = failure_of(changed, tmp_path / "checkpoint")
    assert re.search(r"n\b.*(long|bigint).*total\b.*(long|bigint)", refused), "what is stored"
    assert re.search(r"\bt\b.*double", refused), "what is new"
    assert went_on(totals(source.stream()), tmp_path / "checkpoint")


def test_an_operator_that_comes_later_starts_empty_only_if_told(spark, tmp_path):
    source = orders(spark, tmp_path / "orders")
    source.add(("u0", 1), ("u1", 10))
    plain = source.stream().selectExpr("user", "1L as n", "amount as total")
    outputs(plain, tmp_path / "checkpoint")
    source.add(("u0", 2), ("u1", 20))
    refused = failure_of(totals(source.stream()), tmp_path / "checkpoint")
    assert "is at batch 1, and there is no state of its operators 'running_total(user)'" in refused
    assert "With start_empty=True they begin here with empty state" in refused

    late = totals(source.stream(), start_empty=True)
    assert outputs(late, tmp_path / "checkpoint") == [[("u0", 1, 2), ("u1", 1, 20)]]
    source.add(("u0", 3))
    # The argument may stay in the program: it empties nothing that is there.
    assert outputs(late, tmp_path / "checkpoint") == [[("u0", 2, 5)]]
    expected = {("u0",): (2, 5), ("u1",): (1, 20)}
    assert state_of(tmp_path / "checkpoint") == expected
    rows = spark.read.format("statestore").option("operatorId", 1000).load(str(tmp_path / "checkpoint")).collect()
    assert {tuple(row.key): tuple(row.value) for row in rows} == expected


def test_a_batch_that_was_run_again_can_be_taken_back(source, tmp_path):
    went_on(totals(source.stream()), tmp_path / "checkpoint")
    done = CliRunner().invoke(holdfast_command, ["rollback", str(tmp_path / "checkpoint"), "--to", "0", "--yes"])
    assert done.exit_code == 0, done.output
    assert state_of(tmp_path / "checkpoint") == {("u0",): (1, 1), ("u1",): (1, 10)}
    assert went_on(totals(source.stream()), tmp_path / "checkpoint")
