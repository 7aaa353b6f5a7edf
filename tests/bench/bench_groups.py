"""What a task spends between its input and its store: aggregates, a function on Arrow tables, a function per key.

    python tests/bench/bench_groups.py [--rows 200000] [--keys 50000] [--repeats 7] [--provider memory] [--json FILE]

One micro-batch of count and sum by key, from Arrow batches of Spark's size to output, reading and writing the state of
keys that are all known; without the commit. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.conformance import Backend
from holdfast.groups import AggregatePlan, ArrowFunctionPlan, Moment, RowFunctionPlan
from holdfast.groups import aggregates as hf

SPARK_BATCH = 10_000
MEMORY = 1 << 30
STATE = "n long, total long"
TARGETS = {"agg": 0.20, "apply_arrow": 0.20, "apply": 0.60}
"""Seconds on one core for 200,000 rows and 50,000 keys."""


def per_key(key, rows, state):
    n, total = state.get((0, 0))
    for row in rows:
        n += 1
        total += row.amount
    state.update((n, total))
    yield (key[0], n, total)


def per_table(rows, states):
    sums = rows.group_by("user", use_threads=False).aggregate([("amount", "count"), ("amount", "sum")])
    both = states.join(sums, "user", use_threads=False)
    new = pa.table(
        {
            "user": both["user"],
            "n": pc.add(pc.fill_null(both["n"], 0), both["amount_count"]),
            "total": pc.add(pc.fill_null(both["total"], 0), both["amount_sum"]),
        }
    )
    return new, new


def plans(key_type):
    source = f"user {key_type}, amount long"
    output = f"user {key_type}, {STATE}"
    return {
        "agg": AggregatePlan(["user"], source, {"n": hf.count(), "total": hf.sum("amount")}, ansi=True),
        "apply_arrow": ArrowFunctionPlan(["user"], source, STATE, output, per_table),
        "apply": RowFunctionPlan(["user"], source, STATE, output, per_key),
    }


def batches(rows, keys, key_type, rng):
    user = pa.array(rng.integers(0, keys, rows))
    if key_type == "string":
        user = pc.binary_join_element_wise("user-", user.cast(pa.string()), "")
    table = pa.table({"user": user, "amount": rng.integers(0, 1000, rows)})
    return table.to_batches(max_chunksize=SPARK_BATCH)


def seconds(plan, provider, version, work, *, commit=False):
    """Time from the first batch to the last row of output."""
    with plan.engine(MEMORY, tempfile.gettempdir()) as engine, provider.get_store(version) as store:
        started = time.perf_counter()
        for batch in work:
            engine.consume(batch)
        for _ in engine.finish({"default": store}, Moment(version)):
            pass
        took = time.perf_counter() - started
        if commit:
            store.commit()
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--provider", default="memory")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(42)
    results = []
    for key_type in ("long", "string"):
        work = batches(options.rows, options.keys, key_type, rng)
        for operator, (name, plan) in enumerate(plans(key_type).items()):
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as root:
                store = plan.stores["default"]
                provider = Backend(options.provider, root).open(
                    operator_id=operator, key_schema=store.key, value_schema=store.value
                )
                seconds(plan, provider, 0, work, commit=True)
                best = min(seconds(plan, provider, 1, work) for _ in range(options.repeats))
                provider.close()
            results.append({"operator": name, "key": key_type, "seconds": best, "rows_per_second": options.rows / best})
            print(f"{name:12}{key_type:8}{best * 1e3:8.1f} ms{options.rows / best:14,.0f} rows/s")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    missed = [each for each in results if each["seconds"] > TARGETS[each["operator"]]]
    for each in missed:
        target = TARGETS[each["operator"]]
        print(f"{each['operator']} by {each['key']}: {each['seconds']:.2f} s, target {target}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
