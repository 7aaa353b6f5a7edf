"""An executor is killed in the middle of a task; later the state is spread over the executors anew."""

from collections import Counter

import lost_executor
import pytest
from cluster_script import outcome_of
from lost_executor import PARTITIONS, ROWS_PER_BATCH, USERS
from order_totals import state_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c")
    return folder, outcome_of(lost_executor.__file__, folder)


def on_executors(places):
    """How many stores are on each executor, by its id."""
    return Counter(place.rpartition("_")[2] if place else None for place in places)


def test_two_operators_share_one_anchor(outcome):
    assert outcome[1]["anchors"] == 1


def test_state_begins_evenly_spread(outcome):
    assert on_executors(outcome[1]["at first"]) == {"0": PARTITIONS, "1": PARTITIONS}


def test_after_the_loss_all_state_is_on_executors_that_live(outcome):
    places = on_executors(outcome[1]["after the loss"])
    assert sum(places.values()) == 2 * PARTITIONS
    assert set(places) <= {"1", "2"}


@pytest.mark.parametrize("when", ["rebalanced", "later"])
def test_rebalancing_uses_the_new_executor(outcome, when):
    assert on_executors(outcome[1][when]) == {"1": PARTITIONS, "2": PARTITIONS}


def test_nothing_is_loaded_again_once_it_is_spread(outcome):
    loads = {}
    for each in outcome[1]["progress"]:
        loads.setdefault(each["operatorId"], set()).add(each["customMetrics"]["loadedMapCacheMissCount"])
    assert sorted(loads) == [1000, 1001]
    assert all(len(counts) == 1 for counts in loads.values()), "the last two batches found their state where it was"


def test_hosts_unload_the_stores_of_a_query_that_was_stopped(outcome):
    """The script waits for it; here, that there was something to look at."""
    assert outcome[1]["logs"] == 2


def test_nothing_was_lost_or_counted_twice(outcome):
    checkpoint = outcome[0] / "c"
    batches = 1 + max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    assert batches > lost_executor.LOST_IN_BATCH + 5
    amounts = {f"u{user}": range(user, batches * ROWS_PER_BATCH, USERS) for user in range(USERS)}
    assert state_of(checkpoint, "--operator", "1000") == {
        (user,): (len(theirs), sum(theirs)) for user, theirs in amounts.items()
    }
    assert state_of(checkpoint, "--operator", "1001") == {(user,): (batches,) for user in amounts}
