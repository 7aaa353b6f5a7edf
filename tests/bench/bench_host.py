"""The state host: what it costs that a store lives in another process.

    python tests/bench/bench_host.py [--keys 1000000] [--batch 50000] [--repeats 15] [--json FILE]

The same store of the files backend is used in this process and through the client and a host of its own. Both sides
alternate within one run and the best of each counts, so that a busy machine slows both. Writes are not answered, so
they are measured together with the read of one key that follows them; a commit is measured from the open on. Exits
with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
from bench_files import rows
from bench_rows import best

from holdfast.conf import StateStoreConf
from holdfast.contract.provider import Unguarded
from holdfast.executor.client import StateHostClient
from holdfast.executor.launch import ExecutorInfo
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.plugins.registry import create_and_init

TARGET = 4.0
TARGETED = ("get_many", "get_array", "put_array", "commit")
KEY = pa.schema([("user", pa.string())])
VALUE = pa.schema([("count", pa.int64()), ("sum", pa.int64())])


class InProcess:
    """The provider itself."""

    def __init__(self, folder):
        store_id = StateStoreId(f"{folder}/here", 1000, 0)
        self._provider = create_and_init(store_id, KEY, VALUE, None, StateStoreConf.parse({}), {}, Unguarded())

    def open(self, version):
        """A store to write to."""
        return self._provider.get_store(version)


class ThroughHost:
    """The client of a host that ends with this process."""

    def __init__(self, folder):
        executor = ExecutorInfo("bench", "1", "localhost", os.getpid(), token="bench", coordinator=None)
        self._client = StateHostClient(executor, {"spark.holdfast.host.folder": f"{folder}/host"})
        self._id = StateStoreProviderId(StateStoreId(f"{folder}/there", 1000, 0), UUID(int=1))

    def open(self, version):
        """A store to write to."""
        return self._client.open(self._id, KEY, VALUE, None, version, {}, {}, guard=Unguarded())


def fill(side, keys, values):
    """Commit the first version."""
    with side.open(0) as store:
        store.put_many(keys, values)
        store.commit()


def bulk(sides, keys, values, repeats):
    """Reads and writes of one open store, through the host as a ratio to in process."""
    here, there = (side.open(1) for side in sides)
    key_array, value_array = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    probe = keys[:1]

    def put(store):
        store.put_array(key_array, value_array)
        store.get_many(probe)

    def put_many(store):
        store.put_many(keys, values)
        store.get_many(probe)

    for store in (here, there):
        if store.get_many(keys) != values or store.get_array(key_array) != value_array:
            raise AssertionError("both sides read what was written")
    calls = {
        "get_many": lambda store: store.get_many(keys),
        "get_array": lambda store: store.get_array(key_array),
        "put_many": put_many,
        "put_array": put,
    }
    figures = {}
    for name, call in calls.items():
        local, remote = best(repeats, lambda call=call: call(here), lambda call=call: call(there))
        figures |= {f"{name}_ratio": remote / local, f"{name}_ms": remote * 1e3}
    for store in (here, there):
        store.abort()
    return figures


def commits(sides, keys, values, repeats):
    """Open, write and commit, version after version."""
    times = [[], []]
    for version in range(1, repeats + 1):
        for side, taken in zip(sides, times, strict=True):
            started = time.perf_counter()
            with side.open(version) as store:
                store.put_many(keys, values)
                store.commit()
            taken.append(time.perf_counter() - started)
    local, remote = map(min, times)
    return {"commit_ratio": remote / local, "commit_ms": remote * 1e3}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(42)
    keys, values = rows(options.keys, rng)
    chosen = rng.choice(options.keys, options.batch, replace=False).tolist()
    batch = [keys[n] for n in chosen], [values[n] for n in chosen]
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        sides = InProcess(folder), ThroughHost(folder)
        for side in sides:
            fill(side, keys, values)
        figures = bulk(sides, *batch, options.repeats) | commits(sides, *batch, options.repeats)
    work = f"{options.batch:,} of {options.keys:,} keys"
    print(work)
    for name, figure in figures.items():
        print(f"  {name:20}{figure:>9.2f}")
    report = {"work": work, "target": TARGET, "targeted": TARGETED, **figures}
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    missed = [name for name in TARGETED if figures[f"{name}_ratio"] > TARGET]
    for name in missed:
        print(f"{name}_ratio is {figures[f'{name}_ratio']:.2f}, target {TARGET}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
