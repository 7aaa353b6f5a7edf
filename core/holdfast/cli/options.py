"""The arguments that all commands on checkpoints take, and the one place that knows what must not be shown.

Imports nothing heavy: every command line loads this.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.checkpoint.checkpoint import Checkpoint

Command = TypeVar("Command", bound="Callable[..., Any]")

_HIDDEN = "holdfast.hidden"
_SHORTEST = 4
"""Shorter pieces hide nothing and would riddle a message with stars."""


_BUCKET_WITH_SECRET = re.compile(r"(s3[an]?|gc?s)://(?!arn:)[^/]*:.*@", re.IGNORECASE | re.DOTALL)


class Hidden:
    """Takes what the command line gave in confidence out of any text."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, pieces: Iterable[str]) -> None:
        """Hide these, too."""
        new = {piece for piece in pieces if len(piece) >= _SHORTEST}
        # The longest first: one may begin with another.
        self._pieces = sorted({*self._pieces, *new}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for piece in self._pieces:
            text = text.replace(piece, "***")
        return text


def hidden(context: click.Context) -> Hidden:
    """What this run of the command must not show."""
    found: Hidden = context.meta.setdefault(_HIDDEN, Hidden())
    return found


class _HidingFormatter(logging.Formatter):
    def __init__(self, inner: logging.Formatter | None, hide: Hidden) -> None:
        super().__init__()
        self._inner = inner or logging.Formatter()
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        return self._hide(self._inner.format(record))


def hide_in_logs(hide: Hidden) -> None:
    """Let the handlers that are there write no secret: libraries log their requests at level DEBUG."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_HidingFormatter(handler.formatter, hide))


def in_url(url: str) -> Iterator[str]:
    """Yield what may be a user's name and password in a URL, whole and in the pieces that a parser may cut it into.

    Passwords are pasted with ``/`` and ``@`` in them, and then the place where the server begins is anyone's guess.
    """
    _, found, rest = url.partition("://")
    before, at, _ = rest.rpartition("@")
    if not (found and at and ":" in before):
        return
    user, _, password = before.partition(":")
    # A name alone is no secret: Azure's containers stand there.
    yield from (before, user, password, *re.split(r"[/@:?#]", password))


def in_value(value: Any) -> Iterator[str]:
    """Yield every text in the value of an option."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from in_value(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from in_value(inner)


def _take_url(context: click.Context, _: click.Parameter, url: str) -> str:
    hidden(context).add(in_url(url))
    if _BUCKET_WITH_SECRET.match(url):
        # Nothing may take it apart: a secret with a slash in it would come out as the name of a bucket.
        raise InvalidRequest("the URL has credentials in it; give them with --fs-option instead")
    return url


def _take_options(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for number, text in enumerate(given, 1):
        name, equals, value = text.partition("=")
        if not equals or not name.strip(":"):
            # Without the text: it may be the secret alone.
            raise click.UsageError(f"--fs-option number {number} is not KEY=VALUE")
        hidden(context).add((value,))
        if not name.endswith(":"):
            options[name] = {"true": True, "false": False}.get(value, value)
            continue
        try:
            options[name[:-1]] = json.loads(value)
        except ValueError:
            raise click.UsageError(f"--fs-option {name[:-1]}:=… is not JSON") from None
        hidden(context).add(in_value(options[name[:-1]]))
    return options


def on_checkpoint(command: Command) -> Command:
    """Give a command the argument CHECKPOINT and the options of its filesystem."""
    options = click.option(
        "--fs-option",
        "fs_options",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_take_options,
        # Eager, so that no other error is reported before it is known what must not be shown.
        is_eager=True,
        help="Option of the fsspec filesystem, such as endpoint_url=…; KEY:=JSON for what is not text. Repeatable;"
        " values are never shown.",
    )
    return click.argument("checkpoint", callback=_take_url, is_eager=True)(options(command))


def open_checkpoint(url: str, fs_options: dict[str, Any]) -> Checkpoint:
    """Find the checkpoint."""
    from holdfast.checkpoint.checkpoint import Checkpoint

    hide_in_logs(hidden(click.get_current_context()))
    try:
        return Checkpoint.open(url, fs_options)
    except ValueError as error:
        # From the standard library's parser of URLs, which may quote them.
        raise InvalidRequest("the URL of the checkpoint is not understood; write it as protocol://host/path") from error
