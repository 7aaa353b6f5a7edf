"""The names by which a checkpoint knows its stateful operators."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_LONGEST: Final = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def operator_name(name: str | None, function: Callable[..., object] | None, keys: Sequence[str]) -> str:
    """Return the name that was given, or else the function's own and the key columns: ``totals(user, day)``."""
    if name is not None:
        if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST or _CONTROL.search(name):
            raise InvalidRequest(f"{name!r} cannot name an operator; use 1 to {_LONGEST} printable characters")
        return name
    own = getattr(function, "__name__", None)
    # A partial and an object with __call__ have no name at all.
    if own is None or own == "<lambda>":
        raise InvalidRequest(
            f"this operator by {', '.join(keys) or 'partition'} has no name to find its state by: its function is "
            f"{'a lambda' if own else 'without a name'}. Give it name='…', or use a function defined with def"
        )
    return f"{own}({', '.join(keys)})"


def refuse_duplicates(names: Iterable[str]) -> None:
    """Refuse a query in which two operators have one name."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidRequest(
            f"several stateful operators of this query are called {', '.join(map(repr, twice))}, so their states "
            "could be mixed up; give each a name='…' of its own"
        )
