"""The command ``holdfast``."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import sys
from typing import Any

import click

from holdfast.cli.options import hidden, on_checkpoint, open_checkpoint
from holdfast.errors import HoldfastError


class _Group(click.Group):
    """Shows errors of Holdfast as one message: they say what to do, and a stack trace would hide it."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            raise click.ClickException(hidden(ctx)(str(error))) from error


@click.group(cls=_Group)
@click.version_option(importlib.metadata.version("holdfast"), prog_name="holdfast")
@click.option("-v", "--verbose", is_flag=True, help="Show log messages on standard error.")
def main(verbose: bool) -> None:
    """State stores for Spark Structured Streaming, in Python."""
    logging.basicConfig(level=logging.DEBUG if verbose else logging.ERROR, stream=sys.stderr)


@main.command()
@click.option("--provider", default="files", show_default=True, help="Backend that keeps the state.")
@click.option(
    "--seconds",
    type=click.IntRange(1, 300),
    default=15,
    show_default=True,
    help="How long the query runs before it is stopped and started again.",
)
@click.option("--rows", type=click.IntRange(1), default=50_000, show_default=True, help="Rows of each micro-batch.")
@click.option("--keep", is_flag=True, help="Keep the checkpoint and Spark's log, and say where they are.")
def demo(provider: str, seconds: int, rows: int, keep: bool) -> None:
    """Run a stateful streaming query on Spark, read its state back, and restart it. Needs Java."""
    from holdfast.cli.demo import run

    run(provider, seconds, rows, keep=keep)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def providers(as_json: bool) -> None:
    """List the installed backends; exit code 1 if a plug-in cannot be used."""
    from holdfast.cli.providers import as_text, describe
    from holdfast.plugins.registry import installed_providers

    registry = installed_providers()
    click.echo(json.dumps(describe(registry), indent=2) if as_json else as_text(registry))
    for problem in registry.problems:
        click.secho(f"{type(problem.error).__name__}: {problem.error}", fg="red", err=True)
    if registry.problems:
        sys.exit(1)


@main.command()
def settings() -> None:
    """Print the reference of all settings, core and installed backends, as Markdown."""
    from holdfast.cli.reference import settings_reference
    from holdfast.plugins.registry import installed_providers

    click.echo(settings_reference(installed_providers()), nl=False)


@main.command()
@on_checkpoint
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def inspect(checkpoint: str, fs_options: dict[str, Any], as_json: bool) -> None:
    """Show what state a query's CHECKPOINT (a path or a URL) holds: operators, stores, versions, files, schemas."""
    from holdfast.cli.inspection import describe, show

    found = open_checkpoint(checkpoint, fs_options)
    if as_json:
        click.echo(json.dumps(describe(found), indent=2, ensure_ascii=False))
    else:
        show(found)


@main.command()
@on_checkpoint
@click.option("--operator", type=click.IntRange(0), help="Id of the operator; needed if there are several.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--store", help="Name of the store.  [default: default]")
@click.option("--version", type=click.IntRange(0), help="Version; batch N makes version N+1.  [default: the newest]")
@click.option("--limit", type=click.IntRange(0), help="At most so many rows.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "parquet", "hex"]),
    default="table",
    show_default=True,
    help="hex needs no schema: partition, key and value, separated by tabs.",
)
@click.option("--output", type=click.Path(dir_okay=False), help="File to write to instead of standard output.")
def cat(
    checkpoint: str,
    fs_options: dict[str, Any],
    operator: int | None,
    partition: int | None,
    store: str | None,
    version: int | None,
    limit: int | None,
    form: str,
    output: str | None,
) -> None:
    """Print the rows that a version of the state in CHECKPOINT holds, of all partitions."""
    from holdfast.cli.cat import run, select

    found = open_checkpoint(checkpoint, fs_options)
    run(select(found, operator, partition, store, version, limit), form, output)


@main.command()
@on_checkpoint
def verify(checkpoint: str, fs_options: dict[str, Any]) -> None:
    """Read every state file in CHECKPOINT and list what is wrong; exit code 1 if anything is."""
    from holdfast.cli.verification import report
    from holdfast.cli.verification import verify as check

    if not report(check(open_checkpoint(checkpoint, fs_options))):
        sys.exit(1)


@main.command()
@on_checkpoint
@click.option("--to", "batch", type=click.IntRange(0), required=True, help="The batch that is to be the newest.")
@click.option("--yes", is_flag=True, help="Remove the files; without it they are only listed.")
def rollback(checkpoint: str, fs_options: dict[str, Any], batch: int, yes: bool) -> None:
    """Take a stopped query back to a batch: remove commits and state in CHECKPOINT that are newer.

    A dry run unless --yes is given.
    """
    from holdfast.cli.rollback import run

    run(open_checkpoint(checkpoint, fs_options), batch, yes)
