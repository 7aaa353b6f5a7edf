"""Telling users what went wrong in their own function."""

from __future__ import annotations

import traceback
from typing import Any

from holdfast.errors import FunctionFailed


def function_failed(fn: Any, when: str, error: Exception) -> FunctionFailed:
    """The error to raise from `error`; its traceback, which Python shows with it, is the user's."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return FunctionFailed(f"{name_of(fn)} failed {when}: {type(error).__name__}: {error}{where}")


def name_of(fn: Any) -> str:
    """What to call a function in messages."""
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__
