"""The lmdb backend: what a large state costs, against a small one and against the files backend.

    python tests/bench/bench_lmdb.py [--large 10000000] [--small 100000] [--changes 50000] [--repeats 5] [--json FILE]

A batch reads and changes random keys and commits. Each state is measured in a process of its own, whose memory is the
most that was private to it at any moment of filling, snapshots, batches and loading, beyond what it had after its
imports, and with the bench's own inputs, but without LMDB's pages, which are the page cache's. "Sustained" is the mean
of batches without maintenance in between, so that some of them write to LMDB what others left in memory. Restarts are
compared with the local folder as it was and without it. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from threading import Event, Thread
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from holdfast.conformance import Backend
from holdfast.rows import RowCodec

KEYS, VALUES = RowCodec("user long"), RowCodec("count long, sum long")
SCHEMAS = {"key_schema": "user long", "value_schema": "count long, sum long"}
FIRST = 200_000
"""Keys that one commit adds while the state is made."""

SUSTAINED = 13
"""More batches without maintenance: enough that the state's size does not decide how many of them write to LMDB."""

MOST_MEMORY = 500 << 20
BATCH_TARGET, RESTART_TARGET = 2.0, 10.0


def keys_of(users):
    return KEYS.encode(pa.record_batch({"user": users})).to_pylist()


def values_of(rng, count):
    numbers = {"count": rng.integers(1, 1000, count), "sum": rng.integers(0, 10**6, count)}
    return VALUES.encode(pa.record_batch(numbers)).to_pylist()


def private_bytes():
    """Memory of this process that is not a mapped file."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) << 10


class Peak:
    """The most private memory that this process has had since, looked at often."""

    def __init__(self):
        self._before = private_bytes()
        self._most = 0
        self._done = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while not self._done.wait(0.005):
            self._most = max(self._most, private_bytes())

    def take(self):
        self._done.set()
        self._thread.join()
        return max(self._most, private_bytes()) - self._before


def fill(provider, keys, rng):
    version = 0
    for start in range(0, keys, FIRST):
        users = np.arange(start, min(start + FIRST, keys))
        with provider.get_store(version) as store:
            store.put_many(keys_of(users), values_of(rng, len(users)))
            version = store.commit()
    return version


def batch(provider, version, users, values):
    """Read, change and commit, as a task does."""
    started = perf_counter()
    with provider.get_store(version) as store:
        store.get_many(users)
        store.put_many(users, values)
        store.commit()
    return perf_counter() - started


def measure(backend, keys, changes, repeats):
    """Fill a store and run batches on it; the figures, and the version it ends with."""
    rng = np.random.default_rng(7)
    peak = Peak()
    provider = backend.open(**SCHEMAS)
    version = fill(provider, keys, rng)
    provider.get_store(version).abort()
    started = perf_counter()
    provider.do_maintenance()
    snapshot = perf_counter() - started
    times, cpu = [], []
    for _ in range(repeats + SUSTAINED):
        users, values = keys_of(rng.choice(keys, changes, replace=False)), values_of(rng, changes)
        started = process_time()
        times.append(batch(provider, version, users, values))
        cpu.append(process_time() - started)
        version += 1
    provider.get_store(version).abort()
    provider.do_maintenance()
    provider.close()
    return {
        "version": version,
        "batch_s": mean(times[:repeats]),
        "sustained_batch_s": mean(times),
        "sustained_batch_cpu_s": mean(cpu),
        "snapshot_s": snapshot,
        "memory_bytes": peak.take(),
    }


def restart(backend, version):
    """Open a version in this fresh process."""
    peak = Peak()
    started = perf_counter()
    provider = backend.open(**SCHEMAS)
    with provider.get_store(version) as store:
        store.get(keys_of([5])[0])
    took = perf_counter() - started
    provider.close()
    return {"restart_s": took, "memory_bytes": peak.take()}


def in_child(work, *arguments):
    """Run one of the functions above in a process of its own."""
    command = [sys.executable, __file__, "--child", json.dumps([work, *arguments])]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_child(work, provider, folder, *arguments):
    conf = {"spark.holdfast.lmdb.localDir": f"{folder}/local"} if provider == "lmdb" else {}
    backend = Backend(provider, f"{folder}/{provider}", conf=conf).with_conf(stateStore__minDeltasForSnapshot="1")
    print(json.dumps({"measure": measure, "restart": restart}[work](backend, *arguments)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", type=int, default=10_000_000)
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(*json.loads(options.child))
        return 0

    with tempfile.TemporaryDirectory() as small_folder, tempfile.TemporaryDirectory() as folder:
        small = in_child("measure", "lmdb", small_folder, options.small, options.changes, options.repeats)
        files = in_child("measure", "files", small_folder, options.small, options.changes, options.repeats)
        large = in_child("measure", "lmdb", folder, options.large, options.changes, options.repeats)
        warm = in_child("restart", "lmdb", folder, large["version"])
        shutil.rmtree(f"{folder}/local")
        cold = in_child("restart", "lmdb", folder, large["version"])
    figures = {
        "large": options.large,
        "small": options.small,
        "changes": options.changes,
        "batch_ratio": large["batch_s"] / small["batch_s"],
        "sustained_ratio": large["sustained_batch_s"] / small["sustained_batch_s"],
        "batch_to_files_ratio": small["batch_s"] / files["batch_s"],
        "restart_ratio": cold["restart_s"] / warm["restart_s"],
        "memory_bytes": max(large["memory_bytes"], cold["memory_bytes"]),
        "cold_restart_memory_bytes": cold["memory_bytes"],
        "small_batch_s": small["batch_s"],
        "large_batch_s": large["batch_s"],
        "small_sustained_cpu_s": small["sustained_batch_cpu_s"],
        "large_sustained_cpu_s": large["sustained_batch_cpu_s"],
        "snapshot_s": large["snapshot_s"],
        "warm_restart_s": warm["restart_s"],
        "cold_restart_s": cold["restart_s"],
    }
    for name, figure in figures.items():
        print(f"{name:24}{figure:>16,.3f}" if isinstance(figure, float) else f"{name:24}{figure:>16,}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    met = (
        figures["batch_ratio"] <= BATCH_TARGET,
        figures["restart_ratio"] >= RESTART_TARGET,
        figures["memory_bytes"] <= MOST_MEMORY,
    )
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
