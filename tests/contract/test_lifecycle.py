import pytest

from holdfast.contract.lifecycle import Lifecycle, State
from holdfast.errors import IllegalState

ACTIONS = ["get", "put", "remove", "get_range", "prefix_scan", "iterator", "commit"]


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_but_abort_after_the_end(end, action):
    lifecycle = Lifecycle()
    lifecycle.move(end)
    with pytest.raises(IllegalState, match=f"^Cannot {action} after already committed or aborted$"):
        lifecycle.move(action)


def test_abort_never_takes_a_commit_back():
    lifecycle = Lifecycle()
    lifecycle.move("put")
    lifecycle.move("commit")
    lifecycle.move("abort")
    assert lifecycle.state is State.COMMITTED
