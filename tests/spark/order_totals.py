"""One stateful job, running totals of orders by user.

The functions that Spark runs are nested, so that they travel by value: workers cannot import this module.
"""

import json
import time
from pathlib import Path

from click.testing import CliRunner
from streaming_jobs import Input, run

import holdfast as hf
from holdfast.cli.main import main as holdfast_command

ORDERS = "user string, amount long"
TOTALS = "user string, n long, total long"
STATE = "n long, total long"
PATIENCE = 120

# By Spark's hash, with two partitions.
PARTITION_0, PARTITION_1 = "u1", "u0"


def orders(spark, folder, first=0):
    """A folder of orders, a file for each micro-batch, numbered from ``first`` up."""
    return Input(spark, folder, ORDERS, first)


def read_orders(spark, folder):
    """The same for a folder that is there already."""
    return spark.readStream.schema(ORDERS).option("maxFilesPerTrigger", 1).parquet(str(folder))


def totals(frame, *, pause=None, **options):
    """The number and the sum of the orders of each user, over the whole stream.

    ``pause`` is called with the key when its new state has been set.
    """

    def running_total(key, rows, state):
        n, total = state.get((0, 0))
        for row in rows:
            n, total = n + 1, total + row.amount
        state.update((n, total))
        if pause is not None:
            pause(key)
        yield (*key, n, total)

    return hf.group_by(frame, "user", **{"partitions": 2, **options}).apply(running_total, output=TOTALS, state=STATE)


def state_of(checkpoint, *options):
    """The state as the command line shows it: value by key."""
    printed = CliRunner().invoke(holdfast_command, ["cat", str(checkpoint), "--format", "json", *options])
    assert printed.exit_code == 0, printed.output
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    return {tuple(row["key"].values()): tuple(row["value"].values()) for row in rows}


def versions(checkpoint, operator=1000):
    """The versions that the deltas of each of the two partitions make."""
    folder = Path(checkpoint, "state", str(operator))
    return [sorted(int(path.stem) for path in (folder / part).glob("*.delta")) for part in ("0", "1")]


def failure_of(frame, checkpoint):
    """The text with which a query ends, on all there is."""
    try:
        run(frame, checkpoint)
    except Exception as failure:  # noqa: BLE001 -- which type it is differs between the versions of PySpark
        return str(failure)
    raise AssertionError("the query did not fail")


def wait_for(is_so, what="it"):
    """Wait until something is so; fails when it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.02)
