"""The files backend: whether commits and opens cost what changes, not what there is; and what publishing adds.

    python tests/bench/bench_store.py [--small 100000] [--large 1000000] [--changes 50000] [--repeats 9] [--json FILE]

Two stores of different size commit the same number of changes in turn; the ratio of their best times is compared with
the target. A whole commit of a delta to local disk, fsync included, is compared with one call of `lz4.block.compress`
over the same bytes. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import lz4.block
import numpy as np
from bench_files import rows
from bench_rows import best

from holdfast.checkpoint.framing import compress
from holdfast.checkpoint.records import encode_records
from holdfast.checkpoint.storage import Folder
from holdfast.conformance import Backend

SCALING_TARGET = 1.3
PUBLISH_TARGET = 4.0


class Store:
    """A store of a given size that is changed batch by batch."""

    def __init__(self, folder, partition, size, rng):
        self._provider = Backend("files", folder).open(partition_id=partition)
        self._rng = rng
        self._keys, self._values = rows(size, rng)
        self._version = 0
        self.change(size)

    def change(self, changes):
        """Commit changes to random keys; returns the seconds that opening and committing took."""
        chosen = self._rng.choice(len(self._keys), changes, replace=False).tolist()
        # New objects, as rows that come out of a batch are: equal to the store's own, not the same.
        keys = [bytes(memoryview(self._keys[i])) for i in chosen]
        values = [bytes(memoryview(self._values[i])) for i in reversed(chosen)]
        started = time.perf_counter()
        store = self._provider.get_store(self._version)
        opened = time.perf_counter()
        store.put_many(keys, values)
        buffered = time.perf_counter()
        self._version = store.commit()
        return opened - started, time.perf_counter() - buffered


def scaling(folder, small, large, changes, repeats, rng):
    """Open and commit at two sizes, in turn."""
    stores = [Store(folder, partition, size, rng) for partition, size in enumerate((small, large))]
    times = [[store.change(changes) for store in stores] for _ in range(repeats)]
    opens, commits = (np.array([[t[part] for t in pair] for pair in times]).min(axis=0) for part in (0, 1))
    return {
        "work": f"{changes:,} changes at {large:,} keys against {small:,}",
        "commit_ratio": commits[1] / commits[0],
        "open_ratio": opens[1] / opens[0],
        "commit_ms": commits[1] * 1e3,
        "open_ms": opens[1] * 1e3,
    }


def publishing(folder, changes, repeats, rng):
    """Encode, compress and publish a delta on local disk."""
    keys, values = rows(changes, rng)
    data = encode_records(keys, values)
    target = Folder.open(folder)
    stored = compress(data)
    plain, whole, publish = best(
        repeats,
        lambda: lz4.block.compress(data, store_size=False),
        lambda: target.publish("1.delta", compress(encode_records(keys, values))),
        lambda: target.publish("1.delta", stored),
    )
    return {
        "work": f"encode, compress and publish {changes:,} changes",
        "publish_ratio": whole / plain,
        "lz4_block_ms": plain * 1e3,
        "whole_ms": whole * 1e3,
        "fsync_and_rename_ms": publish * 1e3,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(42)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        results = [
            scaling(folder, options.small, options.large, options.changes, options.repeats, rng),
            publishing(f"{folder}/publish", options.changes, options.repeats * 3, rng),
        ]
    for result in results:
        print(result["work"])
        for name, figure in result.items():
            if name != "work":
                print(f"  {name:24}{figure:>9.2f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    targets = {"commit_ratio": SCALING_TARGET, "open_ratio": SCALING_TARGET, "publish_ratio": PUBLISH_TARGET}
    missed = [
        f"{name} is {result[name]:.2f}, target {target}"
        for result in results
        for name, target in targets.items()
        if result.get(name, 0) > target
    ]
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
