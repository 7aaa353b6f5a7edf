"""The identities of stores and of their loaded instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from uuid import UUID

DEFAULT_STORE_NAME: Final = "default"

_LARGEST: Final = 2**63 - 1
"""Spark's numbers are 64-bit."""


def check_number(name: str, number: object) -> None:
    """Refuse what is not a whole number from 0 up that Spark could have."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _LARGEST:
        raise InvalidRequest(f"{name} must be a whole number from 0 to {_LARGEST}; got {number!r}")


@dataclass(frozen=True, slots=True)
class StateStoreId:
    """Which store: one partition of one stateful operator of one query."""

    checkpoint_root: str
    """Folder (path or URL) that holds all state of the query, usually ``<checkpoint>/state``."""

    operator_id: int
    """The stateful operator's number in its query."""

    partition_id: int
    """The partition of that operator's state."""

    store_name: str = DEFAULT_STORE_NAME
    """Tells apart several stores of one partition."""

    def __post_init__(self) -> None:
        """Refuse what could not be a folder of its own under the checkpoint root."""
        for field in ("checkpoint_root", "store_name"):
            text: object = getattr(self, field)
            if not isinstance(text, str):
                raise InvalidRequest(f"{field} must be text; got {text!r}")
        if not self.checkpoint_root:
            raise InvalidRequest("a store needs a checkpoint root; got an empty one")
        check_number("operator_id", self.operator_id)
        check_number("partition_id", self.partition_id)
        if self.store_name in {"", ".", ".."} or "/" in self.store_name or "\0" in self.store_name:
            raise InvalidRequest(
                f"store name {self.store_name!r} cannot be a folder name; use one without '/' that is not '.' or '..'"
            )

    def store_checkpoint_location(self) -> str:
        """The one folder in which this store may keep files; no other store has the same.

        The default store has no folder of its own below its partition, as in Spark, so that
        checkpoints from before stores had names (Spark 2.2 and older) still open.
        """
        partition = f"{self.checkpoint_root.rstrip('/')}/{self.operator_id}/{self.partition_id}"
        if self.store_name == DEFAULT_STORE_NAME:
            return partition
        return f"{partition}/{self.store_name}"


@dataclass(frozen=True, slots=True)
class StateStoreProviderId:
    """Which loaded instance: a store within one run of its query.

    A restarted query has a new run id, so it never reuses an instance of the run before it.
    """

    store_id: StateStoreId
    query_run_id: UUID
