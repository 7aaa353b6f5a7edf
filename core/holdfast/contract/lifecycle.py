"""The states of a store that is open for writing, as one table."""

from __future__ import annotations

from enum import Enum
from typing import Final

from holdfast.errors import IllegalState


class State(Enum):
    """Where a store is in its life."""

    UPDATING = "updating"
    COMMITTED = "committed"
    ABORTED = "aborted"


_READS_AND_WRITES: Final = ("get", "put", "remove", "get_range", "prefix_scan", "iterator")

# What is absent is refused. Aborting is always allowed, so that clean-up code needs no questions;
# after a commit it changes nothing, because what was published stays published.
NEXT: Final[dict[tuple[State, str], State]] = {
    **{(State.UPDATING, action): State.UPDATING for action in _READS_AND_WRITES},
    (State.UPDATING, "commit"): State.COMMITTED,
    (State.UPDATING, "abort"): State.ABORTED,
    (State.ABORTED, "abort"): State.ABORTED,
    (State.COMMITTED, "abort"): State.COMMITTED,
}


class Lifecycle:
    """Holds the state of one store and refuses what the table does not allow."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = State.UPDATING

    def check(self, action: str) -> State:
        """Return the state that ``action`` leads to, or refuse it; changes nothing."""
        after = NEXT.get((self.state, action))
        if after is None:
            raise IllegalState(f"Cannot {action} after already committed or aborted")
        return after

    def move(self, action: str) -> None:
        """Do what ``check`` does and go to the new state."""
        self.state = self.check(action)
