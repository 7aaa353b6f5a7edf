"""``holdfast inspect``, ``cat`` and ``verify``: they show what is there, on any filesystem, and write nothing."""

import base64
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.log import CheckpointLog
from holdfast.checkpoint.metadata import OperatorMetadata, write_operator
from holdfast.checkpoint.schema_files import StateSchema, write_state_schema
from holdfast.checkpoint.storage import Folder
from holdfast.cli import main as cli
from holdfast.cli.cat import plain
from holdfast.conformance import Backend
from holdfast.rows import RowCodec, arrow_schema
from holdfast.rows.void import StoredRows

OLD = Path(__file__).parents[3] / "shared" / "spark-checkpoints"
OLD_NAMES = sorted(path.name for path in OLD.iterdir() if path.is_dir()) if OLD.is_dir() else []
needs_old = pytest.mark.skipif(not OLD_NAMES, reason=f"no checkpoints of old Sparks in {OLD}")

KEY, VALUE = "name string, part int", "n long, text string"
KEYS, VALUES = RowCodec(arrow_schema(KEY)), RowCodec(arrow_schema(VALUE))


@pytest.fixture
def run():
    def invoke(*arguments, ok=True):
        shown = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
        assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
        assert "Traceback" not in shown.output
        if ok:
            assert shown.exit_code == 0, shown.output
        else:
            assert shown.exit_code == 1, shown.output
        return shown

    return invoke


def key(number):
    return KEYS.encode_one((f"k{number}", number))


def value(number, text="x"):
    return VALUES.encode_one((number, text))


def write(root, partitions=2, versions=5, schema=True, **options):
    """A checkpoint of the ``files`` backend; returns what each partition holds at the end."""
    backend = Backend("files", root, **options)
    state = {}
    for partition in range(partitions):
        provider = backend.open(partition_id=partition)
        for version in range(versions):
            with provider.get_store(version) as store:
                store.put(key(version), value(version))
                store.put(key(100), value(partition))
                if version == 3:
                    store.remove(key(0))
                store.commit()
        with provider.get_read_store(versions) as store:
            state[partition] = dict(store.iterator())
        provider.close()
    first = Folder.open(f"{root}/0/0", options.get("fs_options", {}))
    if schema:
        write_state_schema(first, StateSchema(arrow_schema(KEY), arrow_schema(VALUE)))
    else:
        first.child("_metadata").remove(["schema"])
    return state


def hex_lines(state):
    return [f"{partition}\t{k.hex()}\t{v.hex()}" for partition, pairs in state.items() for k, v in pairs.items()]


def tree(folder):
    """Every name below a folder, with a hash of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        for path in sorted(Path(folder).rglob("*"))
    }


@pytest.fixture
def checkpoint(tmp_path):
    root = tmp_path / "checkpoint"
    write(str(root / "state"))
    for log, last in (("offsets", 4), ("commits", 4)):
        (root / log).mkdir()
        for batch in range(last + 1):
            (root / log / str(batch)).write_text('v1\n{"batchWatermarkMs":0,"conf":{}}\n0')
    return root


# A Holdfast-written checkpoint


class TestCat:
    @pytest.mark.parametrize("folder", ["ordinary", "with space", "únïcode 日本", "100%"])
    def test_hex_is_the_raw_records_and_nothing_else(self, run, tmp_path, folder):
        root = tmp_path / folder / "state"
        state = write(str(root))
        for place in (root, root.parent, f"file:{root}"):
            shown = run("cat", place, "--format", "hex")
            assert sorted(shown.stdout.splitlines()) == sorted(hex_lines(state))
            assert [line.split("\t")[0] for line in shown.stdout.splitlines()] == ["0"] * 5 + ["1"] * 5
            assert "version 5 (after batch 4)" in shown.stderr

    def test_hex_needs_no_schema(self, run, tmp_path):
        state = write(str(tmp_path), schema=False)
        assert sorted(run("cat", tmp_path, "--format", "hex").stdout.splitlines()) == sorted(hex_lines(state))
        refused = run("cat", tmp_path, "--format", "json", ok=False)
        assert "no schema is stored" in refused.stderr
        assert "--format hex" in refused.stderr

    def test_the_schema_may_be_in_the_operators_metadata(self, run, tmp_path):
        write(str(tmp_path), schema=False)
        schemas = {"default": StateSchema(arrow_schema(KEY), arrow_schema(VALUE))}
        write_operator(
            Folder.open(str(tmp_path / "0")), OperatorMetadata("totals", "LOG", "acme.Provider", 2, ("name",), schemas)
        )
        assert len(run("cat", tmp_path, "--format", "json").stdout.splitlines()) == 10
        assert "operator 0, totals, 2 partitions, acme.Provider (LOG)" in run("inspect", tmp_path).stdout

    def test_json(self, run, checkpoint):
        rows = [json.loads(line) for line in run("cat", checkpoint, "--format", "json").stdout.splitlines()]
        assert {"partition": 1, "key": {"name": "k100", "part": 100}, "value": {"n": 1, "text": "x"}} in rows
        assert len(rows) == 10

    def test_partition_version_and_limit(self, run, checkpoint):
        shown = run("cat", checkpoint, "--partition", 1, "--version", 1, "--format", "json", "--limit", 5)
        assert "partition 1, version 1 (after batch 0)" in shown.stderr
        rows = [json.loads(line) for line in shown.stdout.splitlines()]
        assert sorted(row["key"]["part"] for row in rows) == [0, 100]
        assert {row["partition"] for row in rows} == {1}
        assert len(run("cat", checkpoint, "--format", "hex", "--limit", 7).stdout.splitlines()) == 7
        assert run("cat", checkpoint, "--format", "hex", "--limit", 0).stdout == ""
        assert run("cat", checkpoint, "--version", 0, "--format", "json").stdout == ""

    def test_newest_is_what_all_partitions_have(self, run, checkpoint):
        (checkpoint / "state/0/1/5.delta").unlink()
        assert "version 4 (after batch 3)" in run("cat", checkpoint).stderr
        assert "version 5 (after batch 4)" in run("cat", checkpoint, "--partition", 0).stderr

    def test_table(self, run, checkpoint):
        lines = run("cat", checkpoint).stdout.splitlines()
        assert lines[0].split() == ["partition", "key.name", "key.part", "value.n", "value.text"]
        assert ["1", "k100", "100", "1", "x"] in [line.split() for line in lines]
        assert len(run("cat", checkpoint, "--limit", 3).stdout.splitlines()) == 4

    def test_a_long_table_says_that_it_is_cut(self, run, checkpoint, monkeypatch):
        monkeypatch.setattr("holdfast.cli.cat.TABLE_LIMIT", 6)
        shown = run("cat", checkpoint)
        assert len(shown.stdout.splitlines()) == 7
        assert "only the first 6 rows" in shown.stderr

    def test_parquet(self, run, checkpoint, tmp_path):
        assert "--output" in run("cat", checkpoint, "--format", "parquet", ok=False).stderr
        target = tmp_path / "out.parquet"
        run("cat", checkpoint, "--format", "parquet", "--output", target)
        rows = pq.read_table(target).to_pylist()
        assert {"partition_id": 1, "key": {"name": "k100", "part": 100}, "value": {"n": 1, "text": "x"}} in rows
        assert len(rows) == 10

    def test_output_is_the_whole_file_or_none(self, run, checkpoint, tmp_path):
        target = tmp_path / "out.txt"
        run("cat", checkpoint, "--format", "hex", "--output", target)
        assert target.read_text() == run("cat", checkpoint, "--format", "hex").stdout
        target.unlink()
        damaged = checkpoint / "state/0/1/5.delta"
        damaged.write_bytes(damaged.read_bytes()[:-1])
        run("cat", checkpoint, "--format", "hex", "--output", target, ok=False)
        assert not target.exists()
        assert "cannot write" in run("cat", checkpoint, "--output", tmp_path / "no" / "x", ok=False).stderr
        assert list(tmp_path.iterdir()) == [checkpoint]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--operator", "7"], "there is no operator 7 in"),
            (["--store", "left"], "has no store 'left'; choose one with --store: default"),
            (["--partition", "9"], "has no partition 9; there are 0-1"),
            (["--version", "9"], "cannot be loaded; there are: 1-5"),
        ],
    )
    def test_what_is_not_there_is_listed(self, run, checkpoint, arguments, message):
        assert message in run("cat", checkpoint, *arguments, ok=False).stderr

    def test_several_operators(self, run, checkpoint):
        shutil.copytree(checkpoint / "state/0", checkpoint / "state/1000")
        assert "choose one with --operator: 0, 1000" in run("cat", checkpoint, ok=False).stderr
        assert run("cat", checkpoint, "--operator", 1000, "--format", "hex").stdout

    def test_a_reader_that_goes_away(self, checkpoint):
        provider = Backend("files", str(checkpoint / "state")).open(operator_id=0)
        with provider.get_store(5) as store:
            for number in range(20_000):
                store.put(key(number), value(number, "y" * 50))
            store.commit()
        provider.close()
        for form in ("hex", "json", "table"):
            command = f"'{sys.executable}' -m holdfast cat --partition 0 --format {form} --limit 20000 '{checkpoint}'"
            shown = subprocess.run(["sh", "-c", f"{command} | head -n 1"], capture_output=True, text=True, check=True)
            assert len(shown.stdout.splitlines()) == 1
            assert "Traceback" not in shown.stderr
            assert "Exception" not in shown.stderr

    def test_rows_of_another_schema_are_an_error_that_names_it(self, run, checkpoint):
        wrong = StateSchema(arrow_schema(KEY), arrow_schema("a string, b string, c string"))
        write_state_schema(Folder.open(str(checkpoint / "state/0/0")), wrong)
        message = run("cat", checkpoint, ok=False).stderr
        assert "not of the stored schema" in message
        assert "c string" in message


def test_values_in_json():
    nan, infinity = float("nan"), float("inf")
    assert [plain(x) for x in (nan, infinity, -infinity, 1.5, True, None)] == [
        "NaN", "Infinity", "-Infinity", 1.5, True, None,
    ]  # fmt: skip
    assert plain(Decimal("1.50")) == "1.50"
    assert plain(b"\x00\xff") == base64.b64encode(b"\x00\xff").decode()
    assert plain([("a", date(2026, 1, 2))]) == [["a", "2026-01-02"]]
    assert plain({"s": datetime(2026, 1, 2, 3)}) == {"s": "2026-01-02T03:00:00"}


def test_columns_of_one_name_and_times_beyond_python(run, tmp_path):
    schema = pa.schema([("n", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    row = RowCodec(schema).encode(
        pa.RecordBatch.from_arrays(
            [pa.array([1]), pa.array([2]), pa.array([2**60]).cast(schema[2].type)], schema=schema
        )
    )
    CheckpointLog(Folder.open(str(tmp_path / "0/0")), "lz4").append(
        1, {row[0].as_py(): row[0].as_py()}, None, lambda: None
    )
    write_state_schema(Folder.open(str(tmp_path / "0/0")), StateSchema(schema, schema))
    shown = json.loads(run("cat", tmp_path, "--format", "json").stdout)
    assert shown["key"] == shown["value"] == {"n": 1, "n#2": 2, "at": f"{2**60} µs since 1970"}
    run("cat", tmp_path, "--format", "parquet", "--output", tmp_path / "x.parquet")
    assert pq.read_schema(tmp_path / "x.parquet").field("key").type.get_field_index("n#2") == 1


class TestVoid:
    def test_a_void_column_is_read_as_null(self):
        schema = pa.schema([pa.field("a", pa.int32()), pa.field("nothing", pa.null())])
        rows = RowCodec("a int, nothing byte").encode(
            pa.RecordBatch.from_pydict(
                {"a": [1], "nothing": [None]}, pa.schema([("a", pa.int32()), ("nothing", pa.int8())])
            )
        )
        columns = StoredRows(schema).decode(rows)
        assert [column.type for column in columns] == [pa.int32(), pa.null()]
        assert [column.to_pylist() for column in columns] == [[1], [None]]

    def test_anything_else_in_it_is_damage(self):
        from holdfast.errors import CorruptState

        row = RowCodec("nothing byte").encode_one((3,))
        with pytest.raises(CorruptState, match="'nothing': not null"):
            StoredRows(pa.schema({"nothing": pa.null()})).decode([row])


class TestInspect:
    def test_table(self, run, checkpoint):
        shown = run("inspect", checkpoint).stdout
        assert str(checkpoint) in shown
        assert "batches: offsets 0..4, commits 0..4" in shown
        assert "default  0-1         1..5      none                  5     10" in shown
        assert "key (name string, part int), value (n bigint, text string)" in shown
        assert "note" not in shown

    def test_json(self, run, checkpoint):
        Folder.open(str(checkpoint / "state/0/1")).set_aside("5.delta")
        log = CheckpointLog(Folder.open(str(checkpoint / "state/0/1")), "lz4")
        log.write_snapshot(3, [(key(1), value(1))])
        found = json.loads(run("inspect", checkpoint, "--json").stdout)
        assert found["batches"]["commits"] == {"oldest": 0, "newest": 4}
        (operator,) = found["operators"]
        (store,) = operator["stores"]
        assert store["key"] == "name string, part int"
        first, second = store["partitions"]
        assert (first["oldest"], first["newest"], first["files"], first["deltasSinceSnapshot"]) == (1, 5, 5, 5)
        assert (second["newest"], second["snapshots"], second["setAside"]) == (4, [3], ["5.delta.aside"])
        assert second["deltasSinceSnapshot"] == 1
        sizes = [path.stat().st_size for path in (checkpoint / "state/0/0").glob("*.delta")]
        assert first["bytes"] == sum(sizes)
        (hint,) = found["hints"]
        assert "operator 0 is behind: batch 4 is committed" in hint
        assert "`holdfast rollback` to batch 3 or earlier" in hint

    def test_partitions_that_differ_have_rows_of_their_own(self, run, checkpoint):
        (checkpoint / "state/0/1/3.delta").unlink()
        shown = run("inspect", checkpoint).stdout
        assert "default  0           1..5" in shown
        assert "default  1           1..2 without 3..5" in shown

    def test_hints_tell_state_that_is_ahead_of_the_batches(self, run, checkpoint):
        (checkpoint / "commits/4").unlink()
        assert "(after batch 4, which is not committed)" in run("cat", checkpoint).stderr
        assert "batch 4 has begun and is not committed" in run("inspect", checkpoint).stdout
        (checkpoint / "commits/3").unlink()
        assert "operator 0 is ahead: the newest committed batch is 2" in run("inspect", checkpoint).stdout

    def test_damaged_metadata_does_not_hide_the_rest(self, run, checkpoint):
        (checkpoint / "state/0/_holdfast").mkdir()
        (checkpoint / "state/0/_holdfast/operator.json").write_text("{")
        (checkpoint / "state/0/0/_metadata/schema").write_bytes(b"\0")
        (checkpoint / "offsets/4").write_text("")
        shown = run("inspect", checkpoint).stdout
        assert "operator.json is damaged" in shown
        assert "_metadata/schema is damaged" in shown
        assert "offsets/4 is damaged" in shown
        assert "1..5" in shown

    @pytest.mark.parametrize("command", ["inspect", "cat", "verify"])
    def test_no_checkpoint_there(self, run, tmp_path, command):
        assert "there is no checkpoint in" in run(command, tmp_path / "no", ok=False).stderr
        (tmp_path / "commits").mkdir()
        assert "has no state" in run(command, tmp_path, ok=False).stderr


class TestVerify:
    def test_good(self, run, checkpoint):
        assert "all is well; checked 10 files" in run("verify", checkpoint).stdout

    def test_every_flipped_byte_is_found_or_harmless(self, run, checkpoint):
        damaged = checkpoint / "state/0/1/3.delta"
        good = damaged.read_bytes()
        for position in range(0, len(good), 7):
            damaged.write_bytes(good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :])
            shown = run("verify", checkpoint, ok=False)
            assert "wrong: " in shown.stdout
            assert str(damaged) in shown.stdout

    def test_truncated(self, run, checkpoint):
        damaged = checkpoint / "state/0/0/2.delta"
        for size in (0, 5, 30, damaged.stat().st_size - 1):
            damaged.write_bytes(damaged.read_bytes()[:size])
            shown = run("verify", checkpoint, ok=False).stdout
            assert f"wrong: {damaged}" in shown
            assert "1 problem; checked 10 files" in shown

    def test_a_removal_in_a_snapshot(self, run, checkpoint):
        delta = (checkpoint / "state/0/0/4.delta").read_bytes()
        (checkpoint / "state/0/0/4.snapshot").write_bytes(delta)
        assert "4.snapshot" in run("verify", checkpoint, ok=False).stdout

    def test_hole(self, run, checkpoint):
        (checkpoint / "state/0/1/3.delta").unlink()
        shown = run("verify", checkpoint, ok=False).stdout
        assert f"{checkpoint}/state/0/1: versions 3 to 5 cannot be loaded: 3.delta is missing" in shown

    def test_a_snapshot_ends_a_hole(self, run, checkpoint):
        log = CheckpointLog(Folder.open(str(checkpoint / "state/0/1")), "lz4")
        log.write_snapshot(4, [(key(1), value(1))])
        (checkpoint / "state/0/1/3.delta").unlink()
        assert "version 3 cannot be loaded" in run("verify", checkpoint, ok=False).stdout
        for old in (1, 2, 4):
            (checkpoint / f"state/0/1/{old}.delta").unlink()
        run("verify", checkpoint)

    def test_partition_behind(self, run, checkpoint):
        (checkpoint / "state/0/1/5.delta").unlink()
        shown = run("verify", checkpoint, ok=False).stdout
        assert "state/0/1: the newest version is 4, but batch 4 is committed: 5.delta is missing" in shown
        (checkpoint / "commits/4").unlink()
        run("verify", checkpoint)  # an interrupted batch, which Spark runs again

    def test_partition_behind_without_a_commit_log(self, run, checkpoint):
        shutil.rmtree(checkpoint / "commits")
        (checkpoint / "state/0/1/5.delta").unlink()
        run("verify", checkpoint)
        (checkpoint / "state/0/1/4.delta").unlink()
        assert "the newest version is 3, but others have version 5" in run("verify", checkpoint, ok=False).stdout

    def test_missing_partition_and_store(self, run, checkpoint):
        for partition in (3, 4):
            shutil.copytree(checkpoint / "state/0/1", checkpoint / f"state/0/{partition}")
        for delta in (checkpoint / "state/0/1").glob("*.delta"):
            delta.unlink()
        for delta in (checkpoint / "state/0/4").glob("*.delta"):
            delta.rename(f"{delta}.aside")
        (checkpoint / "state/0/1/kept").touch()
        shown = run("verify", checkpoint, ok=False).stdout
        assert "state/0/2: the partition is missing" in shown
        assert "state/0/1: there are no files of store default" in shown
        assert "state/0/4: the newest version is 0" in shown
        for partition in (1, 2):
            assert f"partition {partition} is not there" in run("cat", checkpoint, ok=False).stderr
            assert f"{partition}: the partition is missing" in run("rollback", checkpoint, "--to", 1, ok=False).stderr
            shutil.copytree(checkpoint / "state/0/3", checkpoint / f"state/0/{partition}", dirs_exist_ok=True)

    def test_damaged_metadata(self, run, checkpoint):
        (checkpoint / "state/0/_metadata").mkdir()
        (checkpoint / "state/0/_metadata/metadata").write_text("v1\n{}")
        (checkpoint / "state/0/0/_metadata/schema").write_bytes(b"\0\2v2")
        shown = run("verify", checkpoint, ok=False).stdout
        assert "_metadata/metadata is damaged" in shown
        assert "_metadata/schema is damaged" in shown
        assert "2 problems" in shown

    def test_a_file_that_may_not_be_read(self, run, checkpoint):
        if os.geteuid() == 0:
            pytest.skip("root may read everything")
        (checkpoint / "state/0/0/2.delta").chmod(0)
        assert "2.delta" in run("verify", checkpoint, ok=False).stdout


# Nothing is written, and any filesystem will do

COMMANDS = [
    ["inspect"],
    ["inspect", "--json"],
    ["cat"],
    ["cat", "--format", "hex"],
    ["verify"],
    ["rollback", "--to", "2"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_is_written(run, checkpoint, command):
    before = tree(checkpoint)
    run(command[0], checkpoint, *command[1:])
    assert tree(checkpoint) == before


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_on_a_read_only_copy(run, checkpoint, command):
    places = [checkpoint, *checkpoint.rglob("*")]
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    try:
        run(command[0], checkpoint, *command[1:])
    finally:
        for place in places:
            place.chmod(0o755)


def test_in_memory(run):
    root = "memory://reading tools/é"
    try:
        state = write(f"{root}/state")
        for place in (root, f"{root}/state/"):
            assert sorted(run("cat", place, "--format", "hex").stdout.splitlines()) == sorted(hex_lines(state))
            assert "all is well" in run("verify", place).stdout
            assert "1..5" in run("inspect", place).stdout
    finally:
        fsspec.filesystem("memory").rm("/reading tools", recursive=True)


def test_options_reach_the_filesystem(run, checkpoint):
    assert run(
        "inspect", f"file:{checkpoint}", "--fs-option", "auto_mkdir=false", "--fs-option", "use_listings_cache:=0"
    )


# Secrets

SECRET = "hunter2/Zq+9@x"
URLS = [
    f"s3://AKIAUSER:{SECRET}@bucket/q",
    f"gs://AKIAUSER:{SECRET}@bucket/q",
    f"s3a://AKIAUSER:{SECRET.replace('/', '')}@bucket/q",
    f"ftp://someuser:{SECRET}@127.0.0.1:1/q",
    f"http://someuser:{SECRET}@[::1/q",
    f"nosuch://someuser:{SECRET}@host/q",
]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("command", [["inspect"], ["verify"], ["cat"], ["rollback", "--to", "1"]], ids=lambda c: c[0])
def test_secrets_in_the_url_are_not_shown(run, url, command, caplog):
    caplog.set_level(logging.DEBUG)
    shown = run(command[0], url, *command[1:], ok=False)
    assert shown.stderr.startswith("Error: ")
    for piece in ("hunter2", "Zq+9", "AKIAUSER", "someuser"):
        assert piece not in shown.output


@pytest.mark.parametrize("name", ["secret", "foo", "client_kwargs:"])
def test_values_of_options_are_not_shown(name):
    value = json.dumps({"nested": {"inner": SECRET}}) if name.endswith(":") else SECRET
    options = [f"--fs-option={name}={value}", "--fs-option=key=AKIAUSER", "--fs-option=endpoint_url=http://127.0.0.1:1"]
    shown = subprocess.run(
        [sys.executable, "-m", "holdfast", "-v", "inspect", "s3://bucket/q", *options], capture_output=True, text=True
    )
    assert shown.returncode == 1
    assert "Error: " in shown.stderr
    for piece in ("hunter2", "Zq+9", "AKIAUSER"):
        assert piece not in shown.stdout + shown.stderr


@pytest.mark.parametrize("option", [SECRET, f"={SECRET}", f"key:={SECRET}"])
def test_an_option_that_is_none_is_not_repeated(option):
    shown = CliRunner().invoke(cli.main, ["inspect", "memory://x", "--fs-option", option])
    assert shown.exit_code == 2
    assert "hunter2" not in shown.output


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from holdfast.cli import main\n"
        "try: main.main(['--help'])\n"
        "except SystemExit: print(sorted({'pyspark', 'pyarrow', 'numpy', 'fsspec', 'rich'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


# What old Sparks wrote

LISTED = {name: sum(1 for _ in (OLD / name / "state").rglob("*.delta")) for name in OLD_NAMES}


@needs_old
@pytest.mark.parametrize("name", OLD_NAMES)
def test_old_checkpoints(run, name):
    before = tree(OLD / name)
    assert f"checked {LISTED[name]} file" in run("verify", OLD / name).stdout
    found = json.loads(run("inspect", OLD / name, "--json").stdout)
    (operator,) = found["operators"]
    assert found["hints"] == []
    records = 0
    for store in operator["stores"]:
        shown = run("cat", OLD / name, "--store", store["store"], "--format", "hex").stdout
        newest = store["partitions"][0]["newest"]
        expected = Counter()
        for each in Checkpoint.open(str(OLD / name)).operator(0).named(store["store"]):
            for k, v in each.state(newest).items():
                expected[f"{each.partition}\t{k.hex()}\t{v.hex()}"] += 1
        assert Counter(shown.splitlines()) == expected
        records += len(shown.splitlines())
    assert records
    assert tree(OLD / name) == before


@needs_old
def test_an_old_checkpoint_without_a_default_store(run):
    shown = run("cat", OLD / "checkpoint-version-3.5.1-streaming-join", ok=False).stderr
    assert "left-keyToNumValues, left-keyWithIndexToValue, right-keyToNumValues" in shown


@needs_old
def test_an_old_checkpoint_with_the_wrong_schema(run):
    shown = run("cat", OLD / "checkpoint-version-3.3.0-streaming-deduplication", ok=False).stderr
    assert "not of the stored schema" in shown


# What the installed Spark writes

EVENTS = "k string, amount decimal(20,2), ratio double, at timestamp"


def events(folder, batches):
    """A folder for a streaming query, one file per batch."""
    folder.mkdir()
    for batch in range(batches):
        rows = [
            {"k": k, "amount": batch + 0.25, "ratio": batch / 3, "at": f"2026-01-01T00:{batch:02}:00Z"} for k in "abcdé"
        ]
        path = folder / f"{batch:03}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + batch,) * 2)


def stream(spark, folder):
    return spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(str(folder))


def process(frame, checkpoint, mode="append"):
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def conf(spark):
    before = {}

    def change(**settings):
        for name, setting in {"shuffle__partitions": 2, **settings}.items():
            key = "spark.sql." + name.replace("__", ".")
            before.setdefault(key, spark.conf.get(key, None))
            spark.conf.set(key, setting)

    yield change
    for key, setting in before.items():
        spark.conf.unset(key) if setting is None else spark.conf.set(key, setting)


def aggregation(frame):
    from pyspark.sql import functions as f

    counted = (f.count("*"), f.sum("amount"), f.sum("ratio"), f.max("at"), f.collect_set("amount"))
    return frame.groupBy("k").agg(*counted)


def deduplication(frame):
    return frame.withWatermark("at", "1 minute").dropDuplicates(["k", "at"])


def deduplication_and_limit(frame):
    return frame.dropDuplicates(["k"]).limit(3)


def join(frame):
    from pyspark.sql import functions as f

    left, right = (frame.withWatermark("at", "1 minute").alias(side) for side in "lr")
    return left.join(right, f.expr("l.k = r.k and r.at between l.at and l.at + interval 1 minutes"))


def as_json(value):
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return list(map(as_json, value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def distinct(frame):
    """Number the columns that have one name, without which Spark makes no Arrow of them."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructField, StructType

    def renamed(part):
        fields = frame.schema[part].dataType.fields
        before = [[other.name for other in fields[:at]].count(field.name) for at, field in enumerate(fields)]
        names = [field.name + (f"#{count + 1}" if count else "") for field, count in zip(fields, before, strict=True)]
        types = [StructField(name, field.dataType) for name, field in zip(names, fields, strict=True)]
        return f.col(part).cast(StructType(types)).alias(part)

    return frame.select("partition_id", renamed("key"), renamed("value"))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "mode", "settings"),
    [
        (aggregation, "update", {}),
        (aggregation, "update", {"streaming__stateStore__rowChecksum__enabled": "true"}),
        (deduplication, "append", {"streaming__stateStore__compression__codec": "zstd"}),
        (deduplication_and_limit, "append", {}),
        (join, "append", {}),
    ],
)
def test_json_of_a_real_query_is_what_spark_reads(spark, conf, run, tmp_path, query, mode, settings):
    conf(**settings)
    events(tmp_path / "in", 4)
    checkpoint = tmp_path / "checkpoint-é"  # no space: Spark's own reader does not find such a folder
    process(query(stream(spark, tmp_path / "in")), checkpoint, mode)
    before = tree(checkpoint)
    assert "all is well" in run("verify", checkpoint).stdout
    found = json.loads(run("inspect", checkpoint, "--json").stdout)
    assert found["hints"] == []
    assert all(operator["name"] for operator in found["operators"])
    assert "1.." in run("inspect", checkpoint).stdout
    compared = 0
    for operator in found["operators"]:
        for store in operator["stores"]:
            which = ["--operator", operator["operator"], "--store", store["store"]]
            for version in range(1, store["partitions"][0]["newest"] + 1):
                reader = spark.read.format("statestore").option("operatorId", operator["operator"])
                reader = reader.option("storeName", store["store"]).option("batchId", version - 1)
                theirs = [
                    {"partition": row["partition_id"], "key": row["key"], "value": row["value"]}
                    for row in distinct(reader.load(str(checkpoint))).toArrow().to_pylist()
                ]
                shown = run("cat", checkpoint, *which, "--version", version, "--format", "json").stdout
                ours = list(map(json.loads, shown.splitlines()))
                assert sorted(map(json.dumps, ours)) == sorted(json.dumps(as_json(row)) for row in theirs)
                compared += len(ours)
            run("cat", checkpoint, *which)
            run("cat", checkpoint, *which, "--format", "parquet", "--output", tmp_path / "out")
            assert pq.read_table(tmp_path / "out").num_rows == len(ours)
    assert compared
    assert tree(checkpoint) == before


@pytest.mark.spark
def test_state_in_rocksdb_is_told_apart(spark, conf, run, tmp_path):
    conf(
        streaming__stateStore__providerClass=(
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        )
    )
    events(tmp_path / "in", 1)
    process(aggregation(stream(spark, tmp_path / "in")), tmp_path / "c", "update")
    assert "in RocksDB, not read" in run("inspect", tmp_path / "c").stdout
    assert "RocksDB" in run("cat", tmp_path / "c", ok=False).stderr
    assert "nothing" in run("verify", tmp_path / "c", ok=False).stderr
    assert "RocksDB" in run("rollback", tmp_path / "c", "--to", 0, ok=False).stderr
