"""What ``holdfast inspect`` shows."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from holdfast.checkpoint.checkpoint import PROVIDER_CLASS
from holdfast.errors import HoldfastError
from holdfast.rows import ddl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.checkpoint.checkpoint import Checkpoint, Operator, Store

WIDE = 240
"""Columns where the output is not a terminal: whoever reads it can cut lines, but not put them together again."""


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything, as plain data."""
    batches = checkpoint.batches
    return {
        "checkpoint": checkpoint.shown,
        "batches": {
            "offsets": {"oldest": min(batches.offsets, default=None), "newest": max(batches.offsets, default=None)},
            "commits": {"oldest": min(batches.commits, default=None), "newest": max(batches.commits, default=None)},
            "rowChecksums": batches.row_checksums,
            "problems": list(batches.damaged),
        },
        "operators": [_operator(checkpoint, operator) for operator in checkpoint.operators],
        "hints": list(hints(checkpoint)),
    }


def _operator(checkpoint: Checkpoint, operator: Operator) -> dict[str, Any]:
    name = partitions = kind = provider = None
    problems: list[str] = []
    try:
        if (ours := operator.holdfast) is not None:
            name, partitions, kind, provider = ours.name, ours.partitions, ours.kind, ours.provider_class
        elif (theirs := operator.spark) is not None:
            name, partitions = theirs.name, theirs.partitions
            provider = checkpoint.batches.conf.get(PROVIDER_CLASS)
    except HoldfastError as error:
        problems.append(str(error))
    return {
        "operator": operator.id,
        "name": name,
        "numPartitions": partitions,
        "kind": kind,
        "providerClass": provider,
        "problems": problems,
        "stores": [_stores(operator, store) for store in operator.store_names],
    }


def _stores(operator: Operator, name: str) -> dict[str, Any]:
    described: dict[str, Any] = {"store": name, "key": None, "value": None, "problem": None}
    try:
        schema = operator.schema(name)
    except HoldfastError as error:
        described["problem"] = str(error)
    else:
        if schema is not None:
            described |= {"key": ddl(schema.key), "value": ddl(schema.value)}
    return {**described, "partitions": [_partition(store) for store in operator.named(name)]}


def _partition(store: Store) -> dict[str, Any]:
    chain, readable = store.chain, store.readable
    snapshots = sorted(chain.snapshots)
    return {
        "partition": store.partition,
        "oldest": min(readable, default=None),
        "newest": max(readable, default=None),
        "unreadable": [[hole[0], hole[-1]] for hole in store.holes],
        "snapshots": snapshots,
        "deltas": len(chain.deltas),
        "deltasSinceSnapshot": sum(delta > max(snapshots, default=0) for delta in chain.deltas),
        "files": len(chain.deltas) + len(snapshots),
        "bytes": sum(
            size for name, size in store.files.items() if name.endswith((".delta", ".snapshot")) and name[0] != "."
        ),
        "setAside": chain.set_aside,
        "rocksdb": store.is_rocksdb,
    }


def hints(checkpoint: Checkpoint) -> Iterable[str]:
    """Yield how the state relates to the batches that Spark's logs know."""
    batches = checkpoint.batches
    for operator in checkpoint.operators:
        stores = [store for store in operator.stores if not store.is_rocksdb]
        if not batches.commits or not stores:
            continue
        committed = max(batches.commits)
        behind = min(stores, key=lambda store: store.newest_readable)
        ahead = max(stores, key=lambda store: store.chain.newest)
        if behind.newest_readable <= committed:
            back = behind.newest_readable - 1
            way = f"; `holdfast rollback` to batch {back} or earlier lets Spark run the rest again" if back >= 0 else ""
            yield (
                f"operator {operator.id} is behind: batch {committed} is committed, which makes version"
                f" {committed + 1}, but the newest of {behind} that can be loaded is {behind.newest_readable}{way}"
            )
        if ahead.chain.newest > committed + 2:
            yield (
                f"operator {operator.id} is ahead: the newest committed batch is {committed}, which makes version"
                f" {committed + 1}, but {ahead} has version {ahead.chain.newest}; after an interrupted"
                " `holdfast rollback`, run it again"
            )
        elif ahead.chain.newest == committed + 2:
            yield (
                f"batch {committed + 1} has begun and is not committed: operator {operator.id} has its version"
                f" {committed + 2} in {sum(s.chain.newest > committed + 1 for s in stores)} of {len(stores)} stores;"
                " Spark runs the batch again when the query restarts"
            )


def show(checkpoint: Checkpoint) -> None:
    """Print everything for a person to read."""
    console = Console(width=None if sys.stdout.isatty() else WIDE, soft_wrap=False, highlight=False)
    found = describe(checkpoint)
    console.print(f"[bold]{escape(found['checkpoint'])}[/]", soft_wrap=True)
    console.print(_batches(found["batches"]))
    for problem in found["batches"]["problems"]:
        console.print(f"[red]problem[/]  {escape(problem)}", soft_wrap=True)
    for operator in found["operators"]:
        console.print()
        console.print(_heading(operator), soft_wrap=True)
        for problem in operator["problems"]:
            console.print(f"  [red]problem[/]  {escape(problem)}", soft_wrap=True)
        if operator["stores"]:
            console.print(Padding(_table(operator["stores"]), (0, 0, 0, 2), expand=False))
        for store in operator["stores"]:
            _print_schema(console, store)
    for hint in found["hints"]:
        console.print(f"\n[yellow]note[/]  {escape(hint)}", soft_wrap=True)


def _batches(found: dict[str, Any]) -> str:
    def newest(log: str) -> str:
        return "none" if found[log]["newest"] is None else f"{found[log]['oldest']}..{found[log]['newest']}"

    checksums = "; rows have checksums" if found["rowChecksums"] else ""
    return f"batches: offsets {newest('offsets')}, commits {newest('commits')}{checksums}"


def _heading(operator: dict[str, Any]) -> str:
    facts = [f"[bold]operator {operator['operator']}[/]"]
    if operator["name"] is not None:
        facts.append(escape(operator["name"]))
    if operator["numPartitions"] is not None:
        facts.append(f"{operator['numPartitions']} partitions")
    if operator["providerClass"] is not None:
        kind = f" ({operator['kind']})" if operator["kind"] else ""
        facts.append(escape(operator["providerClass"] + kind))
    return ", ".join(facts)


def _table(stores: Iterable[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("store", "partitions", "versions", "snapshots"):
        table.add_column(title, overflow="fold")
    for title in ("deltas since", "files", "bytes", "set aside"):
        table.add_column(title, justify="right")
    for store in stores:
        for alike in _grouped(store["partitions"]):
            first = alike[0]
            table.add_row(
                escape(store["store"]),
                spans([each["partition"] for each in alike]),
                _versions(first),
                spans(first["snapshots"]) or "none",
                "" if first["rocksdb"] else str(first["deltasSinceSnapshot"]),
                str(sum(each["files"] for each in alike)),
                f"{sum(each['bytes'] for each in alike):,}",
                str(sum(len(each["setAside"]) for each in alike)),
            )
    return table


def _grouped(partitions: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Partitions with the same chain, together."""

    def same(each: dict[str, Any]) -> str:
        return repr([each[name] for name in ("oldest", "newest", "unreadable", "snapshots", "deltas", "rocksdb")])

    groups = [list(group) for _, group in groupby(sorted(partitions, key=same), same)]
    return sorted(groups, key=lambda group: int(group[0]["partition"]))


def _versions(partition: dict[str, Any]) -> str:
    if partition["rocksdb"]:
        return "in RocksDB, not read"
    if partition["newest"] is None:
        return "[red]none can be loaded[/]"
    holes = ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in partition["unreadable"])
    return f"{partition['oldest']}..{partition['newest']}" + (f" [red]without {holes}[/]" if holes else "")


def _print_schema(console: Console, store: dict[str, Any]) -> None:
    name = escape(store["store"])
    if store["problem"] is not None:
        console.print(f"  {name}: [red]problem[/]  {escape(store['problem'])}", soft_wrap=True)
    elif store["key"] is None:
        console.print(f"  {name}: no schema is stored", soft_wrap=True)
    else:
        console.print(f"  {name}: key ({escape(store['key'])}), value ({escape(store['value'])})", soft_wrap=True)


def spans(numbers: Sequence[int]) -> str:
    """Spell a sorted list of numbers with its ranges together, as in ``0-4, 7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
