"""The command ``holdfast``."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import sys

import click

from holdfast.errors import HoldfastError


class _Group(click.Group):
    """Shows errors of Holdfast as one message: they say what to do, and a stack trace would hide it."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group)
@click.version_option(importlib.metadata.version("holdfast"), prog_name="holdfast")
@click.option("-v", "--verbose", is_flag=True, help="Show log messages on standard error.")
def main(verbose: bool) -> None:
    """State stores for Spark Structured Streaming, in Python."""
    logging.basicConfig(level=logging.DEBUG if verbose else logging.ERROR, stream=sys.stderr)


@main.command()
@click.option("--provider", default="memory", show_default=True, help="Backend to run it on.")
def demo(provider: str) -> None:
    """Commit, abort and re-read versions of a small store."""
    from holdfast.cli.demo import run

    run(provider)


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
