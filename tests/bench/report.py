"""Runs every benchmark and writes docs/benchmarks.md from what they measured.

    python tests/bench/report.py [--figures FOLDER]

It takes about half an hour. With a folder, figures that are there already are taken from it, and new ones are left
there, so that a run that was cut off can go on. Exits with 1 if a target was missed; the page says so too.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from chart import bars

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "benchmarks.md"

INTRODUCTION = """# Benchmarks

Ratios within one run on one machine, so that a busy or slow machine does not change them much; the best of several
alternating repeats counts. This page is generated: `tox -e bench` measures anew and writes it.

"""

REMARKS = """
A commit touches only what changes, but each of its keys is a few cache misses in a dict that does not fit the
processor's caches, and the smaller store half fits: that is what the commit ratio shows, not work that grows with the
state.

With 500,000 keys four fifths of the rows of a batch are keys of their own, each read from state, written, logged and
put out; the ceiling only counts rows. So the share of it falls, for Spark's own aggregation too.
"""


OPERATOR_KEYS = (50_000, 500_000)


class Benchmarks:
    """Runs benchmarks, unless their figures are there."""

    def __init__(self, figures):
        self._figures = figures

    def run(self, name, *arguments):
        """The figures of one benchmark."""
        output = self._figures / ("_".join([name.removesuffix(".py"), *map(str, arguments)]) + ".json")
        if not output.exists():
            command = [sys.executable, HERE / name, *map(str, arguments), "--json", output]
            subprocess.run(command, check=False, stdout=sys.stderr)
        return json.loads(output.read_text())


def measured(run):
    """What each row of the page says: what was measured, the figure, and whether the target is met."""
    rows = run("bench_rows.py")
    for result in rows["results"]:
        for kind in ("encode", "decode"):
            if f"{kind}_ratio" in result:
                ratio, target = result[f"{kind}_ratio"], rows["target"]
                yield f"{kind} {result['rows']} rows in bulk, times a per-row `struct` loop", ratio, ">=", target
    scaling, publishing = run("bench_store.py")
    yield f"files: commit of {scaling['work']} (ratio)", scaling["commit_ratio"], "<=", 1.3
    yield f"files: open the next version, {scaling['work']} (ratio)", scaling["open_ratio"], "<=", 1.3
    work = publishing["work"]
    yield f"files: {work}, local disk with fsync, times `lz4.block.compress`", publishing["publish_ratio"], "<=", 4.0
    load = run("bench_load.py")
    yield f"files: load a snapshot of {load['keys']:,} keys, times Spark's warm state reader", load["ratio"], "<=", 1.0
    host = run("bench_host.py")
    for call in host["targeted"]:
        yield f"state host: {call} of {host['work']}, times in process", host[f"{call}_ratio"], "<=", host["target"]
    reports = run("bench_coordinator.py")
    yield (
        f"coordinator: instance reports per second over TCP, {reports['work']}",
        reports["per_second"],
        ">=",
        reports["target"],
    )


# Holdfast's way, what it is compared with, and how many times its rate it has to reach.
OPERATOR_TARGETS = (
    ("holdfast apply", "transformWithState (rows), RocksDB", 6),
    ("holdfast apply", "transformWithStateInPandas, RocksDB", 15),
    ("holdfast apply", "applyInPandasWithState, HDFS-backed", 10),
    ("holdfast agg", "Spark JVM aggregation, RocksDB", 1.2),
    ("holdfast apply_arrow", "Spark JVM aggregation, RocksDB", 1.2),
    ("holdfast agg", "mapInArrow that only counts rows (ceiling)", 0.7),
    ("holdfast apply_arrow", "mapInArrow that only counts rows (ceiling)", 0.7),
)


def measured_operator(run, operators):
    """The rows of the page about the operator, end to end."""
    for operator in operators:
        rates = operator["rates"]
        for ours, other, target in OPERATOR_TARGETS:
            what = f"{ours}, {operator['keys']:,} keys, rows/s, times {other}"
            yield what, rates[ours] / rates[other], ">=", target
    rates = operators[-1]["rates"]
    for way in ("agg", "apply"):
        what = f"holdfast {way} on lmdb, {operators[-1]['keys']:,} keys, rows/s, times {way} on files"
        yield what, rates[f"holdfast {way}, lmdb"] / rates[f"holdfast {way}"], ">=", 0.8
    size = run("bench_state_size.py")
    what = f"batch with 50,000 changes, {size['large']:,} keys in state against {size['small']:,} (ratio)"
    yield what, size["batch_ratio"], "<=", 1.3
    what = f"first batch after a restart with {size['restart']:,} keys, times Spark's HDFS-backed aggregation"
    yield what, size["restart_ratio"], "<=", 1.0


def measured_lmdb(run):
    """The rows of the page about large state on local disk."""
    lmdb = run("bench_lmdb.py")
    what = f"lmdb: batch with {lmdb['changes']:,} changes, {lmdb['large']:,} keys against {lmdb['small']:,} (ratio)"
    yield what, lmdb["batch_ratio"], "<=", 2
    what = (
        f"lmdb: the same without maintenance in between, so that batches write to LMDB, {lmdb['large']:,} keys (ratio)"
    )
    yield what, lmdb["sustained_ratio"], "<=", 2
    what = f"lmdb: restart with {lmdb['large']:,} keys, cold local folder, times a warm one"
    yield what, lmdb["restart_ratio"], ">=", 10
    what = f"lmdb: the process's own memory with {lmdb['large']:,} keys, MB"
    yield what, lmdb["memory_bytes"] / (1 << 20), "<=", 500


def rates_section(operator):
    """A table and a plot of the rates of all ways to do the same work."""
    work = f"{operator['rows']:,} rows per batch, {operator['keys']:,} keys"
    plot = PAGE.with_name(f"operator-{operator['keys']}-keys.svg")
    plot.write_text(bars(f"rows/s, {work}", operator["rates"], lambda name: name.startswith("holdfast")))
    ordered = sorted(operator["rates"].items(), key=lambda item: -item[1])
    table = "".join(f"| {name} | {rate:,.0f} |\n" for name, rate in ordered)
    return f"\n## Count and sum by key, {work}\n\n![rates]({plot.name})\n\n| way | rows/s |\n| --- | --- |\n{table}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", type=Path)
    figures = parser.parse_args().figures
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        return write_page(Benchmarks(figures).run)
    with tempfile.TemporaryDirectory() as folder:
        return write_page(Benchmarks(Path(folder)).run)


def write_page(run):
    """Measure, write the page, and return what to exit with."""
    lines, missed = [], 0
    # First, before other benchmarks have warmed the machine up.
    operators = [run("bench_operator.py", "--keys", keys) for keys in OPERATOR_KEYS]
    for what, figure, sense, target in [*measured(run), *measured_operator(run, operators), *measured_lmdb(run)]:
        met = figure >= target if sense == ">=" else figure <= target
        missed += not met
        lines.append(f"| {what} | {figure:.2f} | {sense} {target:g} | {'yes' if met else '**no**'} |\n")
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("pyspark", "pyarrow", "numpy", "lz4")
    )
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {versions}.\n\n"
    table = "| measured | figure | target | met |\n| --- | --- | --- | --- |\n" + "".join(lines)
    PAGE.write_text(INTRODUCTION + machine + table + REMARKS + "".join(map(rates_section, operators)))
    print(PAGE.read_text())
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
