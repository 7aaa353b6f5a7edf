"""The demo as a user runs it: a process of its own, with Spark and all that it starts."""

import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

PATIENCE = 240


def demo(*arguments):
    return [sys.executable, "-m", "holdfast", "demo", *arguments]


@pytest.fixture
def environment(tmp_path):
    """Temporary files go where the test can see what is left."""
    return {**os.environ, "TMPDIR": str(tmp_path)}


def left_in(folder):
    return sorted(path.name for path in folder.glob("holdfast-demo-*"))


def run(environment, *arguments):
    return subprocess.run(demo(*arguments), env=environment, capture_output=True, text=True, timeout=PATIENCE)


def read_until(terminal, found):
    """What a terminal shows, until ``found`` says that it is enough, or to its end."""
    shown, ends = "", time.monotonic() + PATIENCE
    while not found(shown):
        assert time.monotonic() < ends, shown
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece.decode(errors="replace")
    return shown


@pytest.mark.spark
def test_query_state_and_restart(environment, tmp_path):
    shown = run(environment, "--seconds", "1", "--rows", "3000")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    first, second = shown.stdout.split("Restart")

    batches = [int(batch) for batch in re.findall(r"^batch (\d+), rows 3,000, rows/s ", shown.stdout, re.M)]
    assert batches == list(range(len(batches))), "one line for each batch, over the restart"
    assert re.search(r"keys in state \d,\d+, changed \d,\d+, state MB \d.*, update ms \d+, commit ms \d+\n", first)

    command = re.search(r"^\$ holdfast cat (\S+) --version (\d+) --limit 5\npartition  key.user", first, re.M)
    last, version = int(re.search(r"batch (\d+) is the last", first)[1]), int(command[2])
    assert version == last + 1
    assert re.search(
        r'^>>> spark.read.format\("statestore"\).*\n\+-+\+-+\+-+\+\n\| *user\|orders\|total\|', first, re.M
    )
    assert f"recount of all {3000 * version:,} orders" in first

    before, after = re.search(r"([\d,]+) orders before the restart, ([\d,]+)\s+now", second).groups()
    assert int(before.replace(",", "")) == 3000 * version
    assert int(after.replace(",", "")) >= 3000 * (version + 3)
    assert "Traceback" not in shown.stderr
    assert left_in(tmp_path) == []


@pytest.mark.spark
def test_keep_and_a_live_table_and_ctrl_c(environment, tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        demo("--seconds", "300", "--rows", "1000", "--keep"),
        env={**environment, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        shown = read_until(ours, lambda shown: re.search(r"│ +2 │ +1,000 │", shown))
        assert "keys in state" in shown
        assert "\x1b[1A" in shown, "the table is drawn over and over"
        os.killpg(process.pid, signal.SIGINT)
        rest = read_until(ours, lambda shown: False)
        assert process.wait(PATIENCE) == 0, rest
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "Stopped." in rest
    assert "Traceback" not in rest
    (kept,) = left_in(tmp_path)
    assert f"kept in {tmp_path / kept}" in rest
    assert (tmp_path / kept / "checkpoint" / "commits" / "0").exists()


def test_without_java(environment, tmp_path):
    shown = run({**environment, "JAVA_HOME": "/nowhere"})
    assert shown.returncode == 1
    assert "Spark needs Java 17 or newer: install it" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert left_in(tmp_path) == []


def test_backend_whose_state_cannot_be_read_back(environment):
    shown = run(environment, "--provider", "memory")
    assert shown.returncode == 1
    assert "memory keeps no state in the checkpoint" in shown.stderr
    assert "use files" in shown.stderr
