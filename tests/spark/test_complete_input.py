"""An input that ends because Spark failed or gave up is not taken for a complete one."""

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import input_scenarios
import pytest

from holdfast.errors import EnvironmentNotReady
from holdfast.spark.complete_input import END_OF_STREAM, complete_input, ends_here


def check(name, attempts, error):
    verdicts = [attempt["verdict"] for attempt in attempts]
    rows = [attempt["rows"] for attempt in attempts]
    if name == "ordinary":
        assert (error, verdicts, sum(rows)) == (None, ["complete"] * 3, 100_000)
    elif name == "empty_partitions":
        assert (error, verdicts, rows) == (None, ["complete"] * 3, [0, 0, 0])
    elif name.startswith("upstream_error"):
        assert "boom" in error
        assert verdicts == ["cut"]
        assert 0 < rows[0] <= 1_500_000
    elif name == "fetch_failure":
        assert (error, verdicts) == (None, ["cut", "complete"])
        assert 0 < rows[0] < rows[1] == 2_000_000
    else:
        assert name == "cancelled"
        assert "cancel" in error.lower()
        assert verdicts == ["cut"]
        assert 0 < rows[0] < 2_000_000_000


@pytest.mark.spark
@pytest.mark.parametrize("scenario", input_scenarios.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_verdicts(spark, scenario):
    check(scenario.__name__, *scenario(spark))


@pytest.mark.spark
def test_a_reused_worker_reads_on_where_it_should(spark):
    first, second = (input_scenarios.ordinary(spark)[0] for _ in range(2))
    assert len({attempt["worker"] for attempt in first + second}) == 1


@pytest.mark.spark
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(["spark.python.worker.reuse=false", "spark.sql.adaptive.enabled=false"], id="no reuse, no AQE"),
        # Where the marker does not fit into the buffer at once.
        pytest.param(["spark.python.use.daemon=false", "spark.buffer.size=5"], id="no daemon, tiny buffer"),
        pytest.param(
            [
                "spark.python.worker.faulthandler.enabled=true",
                "spark.python.worker.idleTimeoutSeconds=5",
                "spark.python.worker.tracebackDumpIntervalSeconds=1",
                "spark.python.unix.domain.socket.enabled=true",
            ],
            id="watched workers, Unix sockets",
        ),
        pytest.param(["spark.python.udf.pipelined.enabled=true"], id="pipelined"),
    ],
)
def test_verdicts_with_other_settings(settings):
    command = [sys.executable, str(Path(input_scenarios.__file__)), *settings]
    for _ in range(3):
        shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        # Spark's pipelined workers at times lose the channel of a worker that is reused; a cluster would try again.
        if "ClosedChannelException" not in shown.stdout:
            break
    results = json.loads(shown.stdout.splitlines()[-1])
    assert list(results) == [scenario.__name__ for scenario in input_scenarios.SCENARIOS]
    for name, (attempts, error) in results.items():
        check(name, attempts, error)


@pytest.fixture
def wire():
    """Both ends of a worker's socket; the worker's as its daemon opens it."""
    ours, theirs = socket.socketpair()
    with ours, os.fdopen(os.dup(theirs.fileno()), "rb", 8) as stream:
        theirs.close()
        yield ours, stream


@pytest.mark.parametrize("in_buffer", range(5))
def test_the_marker_is_seen_wherever_the_buffer_ends_and_stays_to_be_read(wire, in_buffer):
    ours, stream = wire
    before = b"." * (8 - in_buffer)
    ours.sendall(before + END_OF_STREAM)
    assert stream.read(len(before)) == before
    assert ends_here(stream)
    assert struct.unpack("!i", stream.read(4)) == (-4,)


@pytest.mark.parametrize("sent", [b"", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x00\x00\x00\x08"])
def test_anything_else_is_no_proof(wire, sent):
    ours, stream = wire
    ours.sendall(sent)
    ours.shutdown(socket.SHUT_WR)
    assert not ends_here(stream)


def test_a_connection_that_was_reset_is_no_proof():
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
        with theirs, os.fdopen(os.dup(theirs.fileno()), "rb", 8) as stream:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ours.close()
            assert not ends_here(stream)


def test_outside_a_worker_there_is_nothing_to_prove():
    with pytest.raises(EnvironmentNotReady, match=r"was not found \(PySpark \d.*call from the function of mapInArrow"):
        next(complete_input(iter([1])))
