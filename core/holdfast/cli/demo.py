"""What ``holdfast demo`` shows: a streaming query at work, its state read back, and a restart that goes on."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.cli import cat
from holdfast.contract.capabilities import Capability
from holdfast.errors import InvalidRequest
from holdfast.plugins.registry import installed_providers
from holdfast.spark.java import require_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.spark.demo import BatchReport, RunningTotals

BATCHES_SHOWN: Final = 10
BATCHES_AFTER_RESTART: Final = 3
ROWS_SHOWN: Final = 5

_LOOK_EVERY_SECONDS: Final = 0.2


def run(provider: str, seconds: float, rows: int, *, keep: bool) -> None:
    """Run it all; Ctrl-C ends it early, and just as tidily."""
    _refuse_unreadable(provider)
    require_java()
    from holdfast.spark.demo import RunningTotals

    console = Console(highlight=False)
    with _folder(keep=keep) as folder:
        query = RunningTotals(folder, provider, rows)
        try:
            _show(query, console, provider, seconds)
        except KeyboardInterrupt:
            console.print("\nStopped.")
        finally:
            query.stop()


def _show(query: RunningTotals, console: Console, provider: str, seconds: float) -> None:
    console.print(f"Running totals of orders per user, state in the backend [bold]{provider}[/]. Spark is starting …")
    query.start()
    ends = monotonic() + seconds
    _watch(query, console, lambda seen: bool(seen) and monotonic() > ends)
    query.stop_query()
    before = _proven(query)
    _read_back(query, console, before)

    console.rule("Restart")
    query.stop()
    console.print("Spark is stopped. A new one finds the state in the checkpoint, and the query goes on …")
    query.start()
    enough = before.last_batch + BATCHES_AFTER_RESTART
    _watch(query, console, lambda seen: bool(seen) and seen[-1].batch_id >= enough, after=before.last_batch)
    query.stop_query()
    _compare(console, before, _proven(query, list(before.some)))


@dataclass(frozen=True)
class _Totals:
    """The state after the last committed batch."""

    checkpoint: Checkpoint
    last_batch: int
    orders: int
    users: int
    some: dict[str, tuple[int, int]]
    """Orders and total of a few users."""


def _proven(query: RunningTotals, users: list[str] | None = None) -> _Totals:
    """Read the state, and count anew what it must be; of the given users, or else of those with the most orders."""
    checkpoint = Checkpoint.open(str(query.checkpoint))
    last_batch = max(checkpoint.batches.commits)
    state = query.state(checkpoint.operators[0].id, last_batch).cache()
    recount = query.recount(last_batch)
    if not (state.exceptAll(recount).isEmpty() and recount.exceptAll(state).isEmpty()):
        raise click.ClickException("the state differs from a recount of all orders, which is an error of Holdfast's")
    some = state.orderBy("orders", ascending=False) if users is None else state.where(state.user.isin(users))
    totals = {row.user: (row.orders, row.total) for row in some.limit(ROWS_SHOWN).collect()}
    return _Totals(checkpoint, last_batch, query.orders_until(last_batch), state.count(), totals)


def _watch(
    query: RunningTotals, console: Console, is_enough: Callable[[list[BatchReport]], bool], *, after: int = -1
) -> None:
    """Show the batches above ``after`` as they come, until it is enough."""
    with _live(console) as show:
        while True:
            seen = [report for report in query.reports() if report.batch_id > after]
            show(seen)
            if query.failure is not None:
                raise click.ClickException(f"the query failed: {query.failure}")
            if is_enough(seen):
                return
            sleep(_LOOK_EVERY_SECONDS)


@contextmanager
def _live(console: Console) -> Iterator[Callable[[list[BatchReport]], None]]:
    """A table that follows the batches; where there is no terminal, a line for each."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            yield lambda seen: live.update(_table(seen))
        return
    shown: set[int] = set()

    def print_new(seen: list[BatchReport]) -> None:
        for report in seen:
            if report.batch_id not in shown:
                shown.add(report.batch_id)
                # Not through rich, which would wrap it.
                click.echo(", ".join(f"{title} {cell}" for title, cell in _cells(report).items()))

    yield print_new


def _cells(report: BatchReport) -> dict[str, str]:
    return {
        "batch": str(report.batch_id),
        "rows": f"{report.rows:,}",
        "rows/s": f"{report.rows_per_second:,.0f}",
        "keys in state": f"{report.keys:,}",
        "changed": f"{report.changed:,}",
        "state MB": f"{report.state_bytes / 1e6:.1f}",
        "update ms": f"{report.update_ms:.0f}",
        "commit ms": f"{report.commit_ms:.0f}",
    }


def _table(seen: list[BatchReport]) -> Table:
    if not seen:
        return Table(title="waiting for the first batch", box=None)
    rows = [_cells(report) for report in seen[-BATCHES_SHOWN:]]
    table = Table(title="Micro-batches (update and commit: mean of the partitions)")
    for title in rows[0]:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*row.values())
    return table


def _read_back(query: RunningTotals, console: Console, totals: _Totals) -> None:
    console.print(f"The query was stopped at its work; batch {totals.last_batch} is the last that it committed.")
    console.rule("Its state, read with holdfast cat")
    version = totals.last_batch + 1
    click.echo(f"$ holdfast cat {query.checkpoint} --version {version} --limit {ROWS_SHOWN}")
    cat.run(cat.select(totals.checkpoint, None, None, None, version, ROWS_SHOWN), "table", None)
    console.rule("The same files, read with Spark's own reader")
    operator_id = totals.checkpoint.operators[0].id
    click.echo(f'>>> spark.read.format("statestore").option("operatorId", {operator_id}).load("{query.checkpoint}")')
    query.state(operator_id, totals.last_batch).show(ROWS_SHOWN)
    console.print(f"The state equals a recount of all {totals.orders:,} orders of {totals.users:,} users.")


def _compare(console: Console, before: _Totals, after: _Totals) -> None:
    table = Table("user", title="The totals went on")
    for batch in (before.last_batch, after.last_batch):
        table.add_column(f"orders after batch {batch}", justify="right")
        table.add_column("total", justify="right")
    for user, totals in before.some.items():
        table.add_row(user, *map(str, (*totals, *after.some[user])))
    console.print(table)
    console.print(
        f"{before.orders:,} orders before the restart, {after.orders:,} now, of {after.users:,} users:"
        " [green]the state equals a recount of them all.[/]"
    )


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """A folder that is removed in the end, unless it is wanted or can tell what went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        yield folder
    except Exception:
        keep = True
        raise
    finally:
        if keep:
            click.echo(f"Checkpoint and Spark's log are kept in {folder}")
        else:
            # Spark may still be writing its last words.
            shutil.rmtree(folder, ignore_errors=True)


def _refuse_unreadable(provider: str) -> None:
    """The demo reads the state back from the checkpoint, where not every backend keeps it."""
    registry = installed_providers()
    if Capability.LOG not in registry.resolve(provider).capabilities:
        usable = sorted(
            each.spec.name for each in registry.providers if Capability.LOG in each.spec.provider.capabilities
        )
        raise InvalidRequest(
            f"{provider} keeps no state in the checkpoint, where the demo reads it back; use {', '.join(usable)}"
        )
