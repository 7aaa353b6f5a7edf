"""Telling users what went wrong in their own function."""

from __future__ import annotations

import traceback
from typing import Any

from holdfast.errors import FunctionFailed


def function_failed(fn: Any, when: str, error: Exception) -> FunctionFailed:
    """The error to raise from `error`; its message has the traceback of the function, from its first line on.

    Spark cuts off the cause of an error on its way from the task to the user.
    """
    # The first frame is that of the caller here.
    own = error.__traceback__ and error.__traceback__.tb_next
    shown = "".join(traceback.format_exception(type(error), error, own)).rstrip()
    return FunctionFailed(f"{name_of(fn)} failed {when}: {type(error).__name__}: {error}\n\n{shown}")


def name_of(fn: Any) -> str:
    """What to call a function in messages."""
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__
