"""``holdfast rollback``: back to a batch, in one piece, and Spark goes on from there."""

import json
import os
import shutil
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner

from holdfast.checkpoint.log import CheckpointLog
from holdfast.checkpoint.metadata import OperatorMetadata, write_operator
from holdfast.checkpoint.storage import Folder
from holdfast.cli import main as cli
from holdfast.conformance import Backend
from holdfast.errors import Unavailable
from holdfast.rows import RowCodec, arrow_schema

KEYS, VALUES = RowCodec(arrow_schema("name string, part int")), RowCodec(arrow_schema("n long, text string"))
KEY, VALUE = KEYS.encode_one(("k", 1)), VALUES.encode_one((1, "x"))


@pytest.fixture
def run():
    def invoke(*arguments, ok=True):
        shown = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
        assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
        assert shown.exit_code == (0 if ok else 1), shown.output
        return shown

    return invoke


def write(root, batches=5):
    """A checkpoint with two partitions, a named store, and snapshots below and above."""
    backend = Backend("files", f"{root}/state")
    for partition in range(2):
        for name in ("default", "other"):
            provider = backend.open(partition_id=partition, store_name=name, operator_id=1000)
            for version in range(batches):
                with provider.get_store(version) as store:
                    store.put(KEY, VALUES.encode_one((version, name)))
                    store.commit()
            provider.close()
    log = CheckpointLog(Folder.open(f"{root}/state/1000/1"), "lz4")
    for version in (2, 4, 5):
        log.write_snapshot(version, [(KEY, VALUE)])
    for name in ("offsets", "commits"):
        for batch in range(batches):
            Folder.open(f"{root}/{name}").publish(str(batch), b'v1\n{"conf":{}}\n0')


@pytest.fixture
def checkpoint(tmp_path):
    write(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def names(folder):
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


def expected(before, batch):
    """What is left, told by the names alone."""

    def stays(name):
        folder, _, last = name.rpartition("/")
        number = last.lstrip(".").split(".")[0]
        if not number.isdigit():
            return True
        limit = {"commits": batch, "offsets": batch + 1}.get(folder, batch + 1)
        return folder.startswith("sources") or int(number) <= limit

    return {name for name in before if stays(name)}


@pytest.mark.parametrize("batch", range(5))
def test_removes_what_is_newer_and_nothing_else(run, checkpoint, batch):
    before = names(checkpoint)
    dry = run("rollback", checkpoint, "--to", batch)
    assert names(checkpoint) == before
    listed = {line.removeprefix(f"would remove {checkpoint}/") for line in dry.stdout.splitlines() if "/" in line}
    done = run("rollback", checkpoint, "--to", batch, "--yes")
    assert names(checkpoint) == expected(before, batch)
    if batch == 4:
        assert "nothing to remove" in dry.stdout
        return
    assert before - names(checkpoint) == listed
    assert "dry run" in dry.stdout
    assert f"removed {len(listed)} files" in done.stdout
    assert "the query must be stopped" in dry.stderr
    assert f"kept offsets/{batch + 1}" in dry.stderr
    assert ("may get other input than before" in dry.stderr) == (batch < 3)
    assert "nothing to remove" in run("rollback", checkpoint, "--to", batch).stdout
    assert "all is well" in run("verify", checkpoint).stdout


def test_checksums_beside_the_files_go_too(run, checkpoint):
    store = checkpoint / "state/1000/0"
    for name in (".5.delta.crc", "5.delta.crc", ".2.delta.crc"):
        (store / name).touch()
    (store / "9.delta.aside").touch()
    (checkpoint / "commits/.4.crc").touch()
    (checkpoint / "offsets/.9.crc").touch()  # what a crash can leave
    run("rollback", checkpoint, "--to", 1, "--yes")
    crc = {name for name in names(checkpoint) if name.endswith(".crc")}
    assert crc == {"state/1000/0/.2.delta.crc"}
    assert (store / "9.delta.aside").exists()


def test_a_batch_that_was_interrupted(run, checkpoint):
    """Version 5 is there, its batch is not committed: the state goes back, the batch's input stays known."""
    (checkpoint / "commits/4").unlink()
    run("rollback", checkpoint, "--to", 3, "--yes")
    assert (checkpoint / "offsets/4").exists()
    assert not list(checkpoint.rglob("5.*"))


class TestRefuses:
    def test_a_batch_that_is_not_committed(self, run, checkpoint):
        shown = run("rollback", checkpoint, "--to", 7, "--yes", ok=False)
        assert "batch 7 is not committed" in shown.stderr
        assert "committed batches: 0 to 4" in shown.stderr
        (checkpoint / "commits/3").unlink()
        assert "batch 3 is not committed" in run("rollback", checkpoint, "--to", 3, "--yes", ok=False).stderr

    def test_a_version_that_is_not_there(self, run, checkpoint):
        (checkpoint / "state/1000/0/other/2.delta").unlink()
        before = names(checkpoint)
        message = run("rollback", checkpoint, "--to", 2, "--yes", ok=False).stderr
        assert "operator 1000, partition 0, store other" in message
        assert "version 3" in message
        assert names(checkpoint) == before
        run("rollback", checkpoint, "--to", 0, "--yes")

    def test_a_version_that_is_damaged(self, run, checkpoint):
        damaged = checkpoint / "state/1000/1/other/2.delta"
        damaged.write_bytes(damaged.read_bytes()[:-3])
        before = names(checkpoint)
        message = run("rollback", checkpoint, "--to", 2, "--yes", ok=False).stderr
        assert str(damaged) in message
        assert names(checkpoint) == before

    def test_state_that_is_elsewhere(self, run, checkpoint):
        folder = Folder.open(str(checkpoint / "state/1001"))
        write_operator(folder, OperatorMetadata("other", "EXTERNAL", "acme.Provider", 2, ("name",), {}))
        before = names(checkpoint)
        assert "operator 1001" in run("rollback", checkpoint, "--to", 1, "--yes", ok=False).stderr
        assert names(checkpoint) == before
        assert "of kind EXTERNAL" in run("verify", checkpoint).stdout
        assert "of kind EXTERNAL" in run("cat", checkpoint, "--operator", 1001, ok=False).stderr
        assert "acme.Provider (EXTERNAL)" in run("inspect", checkpoint).stdout

    def test_the_state_alone(self, run, tmp_path):
        write(tmp_path)
        shutil.move(tmp_path / "state", tmp_path / "elsewhere")
        assert "is the state alone" in run("rollback", tmp_path / "elsewhere", "--to", 1, ok=False).stderr

    def test_state_inside_its_checkpoint_is_fine(self, run, checkpoint):
        run("rollback", checkpoint / "state", "--to", 3, "--yes")
        assert not (checkpoint / "commits/4").exists()


def interrupted(monkeypatch, run, checkpoint, calls):
    """Let the storage fail after so many removals; returns whether it was not done before."""
    left = [calls]
    remove = Folder.remove

    def counted(self, names):
        if not left[0]:
            raise Unavailable("the power is gone")
        left[0] -= 1
        remove(self, names)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "remove", counted)
        shown = CliRunner().invoke(cli.main, ["rollback", str(checkpoint), "--to", "1", "--yes"])
    assert shown.exit_code == 0 or "the power is gone" in shown.output
    return shown.exit_code != 0


def test_a_crash_at_every_step_and_the_same_command_again(run, checkpoint, tmp_path, monkeypatch):
    before = names(checkpoint)
    steps = 0
    while True:
        copy = tmp_path / f"copy{steps}"
        shutil.copytree(checkpoint, copy)
        if not interrupted(monkeypatch, run, copy, steps):
            break
        left = names(copy)
        # What Spark would do now: run its newest batch on a version that is whole, or stop.
        assert expected(before, 1) <= left
        if any(f"offsets/{batch}" not in left for batch in (3, 4)):
            assert not any(name.endswith(("/3.delta", "/4.delta", "/5.delta", ".4.snapshot")) for name in left)
        if any(name not in left for name in before if name.endswith(".delta")):
            assert not {"commits/2", "commits/3", "commits/4"} & left
            assert not any(name.endswith(("/4.snapshot", "/5.snapshot")) for name in left)
        run("rollback", copy, "--to", 1, "--yes")
        assert names(copy) == expected(before, 1)
        steps += 1
    assert steps == 3 + 1 + 4 + 2  # commits, folders with snapshots, folders with deltas, offsets


def test_in_memory(run):
    root = "memory://rollback"
    try:
        write(root)
        run("rollback", root, "--to", 2, "--yes")
        left = fsspec.filesystem("memory").find("/rollback")
        assert "/rollback/state/1000/1/3.delta" in left
        assert "/rollback/offsets/3" in left
        assert not {"/rollback/commits/3", "/rollback/offsets/4", "/rollback/state/1000/1/4.snapshot"} & {*left}
    finally:
        fsspec.filesystem("memory").rm("/rollback", recursive=True)


# With Spark


def add_events(folder, batch):
    path = folder / f"{batch:03}.json"
    hidden = folder / f".{batch}"
    rows = [{"k": k, "n": batch, "at": f"2026-01-01T00:{batch:02}:00Z"} for k in "abc"[: 1 + batch % 3]]
    hidden.write_text("\n".join(map(json.dumps, rows)))
    os.utime(hidden, (1_700_000_000 + batch,) * 2)
    hidden.rename(path)


def process(spark, folder, checkpoint):
    """Run the query over what is there; returns the output of each batch by its number."""
    from pyspark.sql import functions as f

    outputs = {}

    def take(frame, batch):
        outputs[batch] = sorted(tuple(row) for row in frame.collect())

    events = spark.readStream.schema("k string, n long, at timestamp").option("maxFilesPerTrigger", 1)
    counted = events.json(str(folder)).groupBy("k").agg(f.count("*").alias("rows"), f.sum("n").alias("total"))
    query = counted.writeStream.foreachBatch(take).outputMode("update").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return outputs


def totals(batches):
    """The same, without Spark: the state after each batch is the output of all until then."""
    state, outputs = {}, {}
    for batch in range(batches):
        changed = {}
        for k in "abc"[: 1 + batch % 3]:
            rows, total = state.get(k, (0, 0))
            state[k] = changed[k] = (rows + 1, total + batch)
        outputs[batch] = sorted((k, *each) for k, each in changed.items())
    return state, outputs


def final_state(run, checkpoint):
    rows = map(json.loads, run("cat", checkpoint, "--format", "json").stdout.splitlines())
    return {row["key"]["k"]: tuple(row["value"].values()) for row in rows}


@pytest.fixture
def query(spark, tmp_path):
    """A query of five batches, with snapshots as Spark's maintenance would have left them."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    for batch in range(5):
        add_events(folder, batch)
    outputs = process(spark, folder, checkpoint)
    assert outputs == totals(5)[1]
    for partition in (0, 1):
        log = CheckpointLog(Folder.open(str(checkpoint / f"state/0/{partition}")), "lz4")
        for version in (2, 5):
            state = {}
            for piece in log.load(version):
                state |= dict(zip(piece.keys, piece.values, strict=True))
            log.write_snapshot(version, state.items())
    yield folder, checkpoint
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.spark
@pytest.mark.parametrize("batch", [0, 2, 3])
def test_spark_goes_on_from_the_batch(spark, run, query, batch):
    folder, checkpoint = query
    before = names(checkpoint)
    run("rollback", checkpoint, "--to", batch, "--yes")
    assert names(checkpoint) == expected(before, batch)
    add_events(folder, 5)
    again = process(spark, folder, checkpoint)
    state, outputs = totals(6)
    # Same number, same input, on the same state.
    assert again[batch + 1] == outputs[batch + 1]
    assert final_state(run, checkpoint) == state
    assert "all is well" in run("verify", checkpoint).stdout


@pytest.mark.spark
def test_without_the_entry_the_batch_would_read_something_else(spark, run, query):
    """Why the entry of batch N+1 stays: without it Spark plans the batch anew, here with three files instead of one."""
    folder, checkpoint = query
    run("rollback", checkpoint, "--to", 1, "--yes")
    (checkpoint / "offsets/2").unlink()
    (checkpoint / "offsets/.2.crc").unlink(missing_ok=True)
    again = process(spark, folder, checkpoint)
    state, outputs = totals(5)
    assert again[2] != outputs[2]
    assert final_state(run, checkpoint) == state


@pytest.mark.spark
@pytest.mark.parametrize(
    ("calls", "goes_on"),
    [(2, True), (7, True), (9, False), (13, False)],
    ids=["among commits", "among snapshots", "among deltas", "among offsets"],
)
def test_a_query_that_is_started_after_a_crash_is_right_or_stops(spark, run, query, monkeypatch, calls, goes_on):
    from pyspark.errors import PySparkException

    folder, checkpoint = query
    assert interrupted(monkeypatch, run, checkpoint, calls)
    add_events(folder, 5)
    if not goes_on:
        with pytest.raises(PySparkException, match=r"\.delta"):
            process(spark, folder, checkpoint)
        run("rollback", checkpoint, "--to", 1, "--yes")
    process(spark, folder, checkpoint)
    assert final_state(run, checkpoint) == totals(6)[0]
