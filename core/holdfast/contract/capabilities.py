"""What a provider can do beyond the required methods. Declared, never found out by calling."""

from __future__ import annotations

from enum import Enum

from holdfast.errors import UnsupportedOperation


class Capability(Enum):
    """One ability of a provider.

    Every provider declares exactly one of ``VOLATILE``, ``LOG`` and ``EXTERNAL``: where its
    state is once the process is gone.
    """

    VOLATILE = "state is lost with the process"
    LOG = "state is in the checkpoint, in Spark's delta and snapshot files"
    EXTERNAL = "state survives in the backend's own storage, outside the log"

    TIME_TRAVEL = "every version of the last minBatchesToRetain can be opened, not only the newest two"
    RANGE_SCAN = "get_range answers by the key's index column, in order"
    PREFIX_SCAN = "prefix_scan answers by the key's leading columns"
    LATE_START = "start_at lets a store begin empty at a version above 0"


DURABILITY = frozenset({Capability.VOLATILE, Capability.LOG, Capability.EXTERNAL})
"""The capabilities of which a provider has exactly one."""


def undeclared(who: object, capability: Capability) -> UnsupportedOperation:
    """The error of a store or provider that is asked for what its provider does not declare."""
    return UnsupportedOperation(
        f"{type(who).__name__} cannot do this: its provider does not declare {capability.name}"
        f" ({capability.value}); choose a provider that does (`holdfast providers` lists them)"
    )
