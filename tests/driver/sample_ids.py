"""Ids that tests of the coordinator share, and a clock that stands still."""

from uuid import UUID

from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.rpc.messages import Attempt, HostId

ROOT = "/data/q/state"
RUN = UUID(int=1)
NEXT_RUN = UUID(int=2)
HOST_A = HostId("exec1", "hostX", "100")
HOST_B = HostId("exec2", "hostX", "200")


class Clock:
    """Monotonic by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def provider(partition=0, run=RUN, root=ROOT, operator=1000, name="default"):
    return StateStoreProviderId(StateStoreId(root, operator, partition, name), run)


def attempt(number, stage=1):
    return Attempt(stage, 0, number)
