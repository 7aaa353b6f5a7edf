"""A host that is killed, at whatever moment, costs the task and nothing else."""

import os
import signal

import pytest
from cluster import host_processes, put, row, rows

from holdfast.errors import Unavailable
from holdfast_files import HDFSBackedStateStoreProvider

FAULT_POINTS = ["publish.start", "publish.allowed", *HDFSBackedStateStoreProvider.fault_points]


def assert_says_what_and_where(error, what, executor):
    assert what in str(error)
    assert "the state host" in str(error)
    assert str(executor.place().log) in str(error)


def assert_goes_on(query, executor, client, killed, hosts_folder):
    """Spark runs the task again: on a new host, from the same version."""
    with query.open(client, 1) as store:
        assert store.get_many([row("a"), row("b")]) == [row(1), None]
        put(store, {"a": 3})
        assert store.commit() == 2
    assert query.commit(client, 2, {"c": 4}) == 3
    assert query.read(client, 3) == query.stored(3) == rows(a=3, c=4)
    assert query.stored(2) == rows(a=3)
    assert host_processes(hosts_folder) == [executor.host_pid()] != [killed]
    assert executor.log().count("listens on") == 2


@pytest.mark.parametrize("point", FAULT_POINTS)
def test_during_commit(executor, query, control, hosts_folder, point):
    client = executor.client()
    query.commit(client, 0, {"a": 1})
    killed = executor.host_pid()
    control.at(point, "kill")
    with query.open(client, 1) as store:
        put(store, {"a": 2, "b": 2})
        with pytest.raises(Unavailable) as failure:
            store.commit()
    assert control.has_reached(point)
    assert not store.has_committed
    assert_says_what_and_where(failure.value, "commit of RemoteStateStore[id=(op=1000,part=0)", executor)
    assert_goes_on(query, executor, client, killed, hosts_folder)


USES = {
    "get": lambda store: store.get(row("a")),
    "commit": lambda store: store.commit(),
    "iterator": lambda store: list(store.iterator()),
    "metrics": lambda store: store.metrics,
}


@pytest.mark.parametrize("use", USES)
def test_before_commit(executor, query, hosts_folder, use):
    client = executor.client()
    query.commit(client, 0, {"a": 1})
    with query.open(client, 1) as store:
        put(store, {"a": 2, "b": 2})
        assert store.get(row("b")) == row(2)
        killed = executor.kill_host()
        with pytest.raises(Unavailable) as failure:
            USES[use](store)
        assert str(executor.place().log) in str(failure.value)
    assert_goes_on(query, executor, client, killed, hosts_folder)


def test_while_much_is_written(executor, query, hosts_folder):
    client = executor.client()
    query.commit(client, 0, {"a": 1})
    store = query.open(client, 1)
    killed = executor.kill_host()
    with pytest.raises(Unavailable) as failure:
        put(store, dict.fromkeys(range(2_000_000), 0))
    assert_says_what_and_where(failure.value, "sending to the state host", executor)
    store.abort()
    assert_goes_on(query, executor, client, killed, hosts_folder)


def test_in_the_middle_of_a_scan(executor, query, hosts_folder):
    client = executor.client()
    query.commit(client, 0, {"a": 1})
    big = query.open(client, 1)
    put(big, dict.fromkeys(range(500_000), 0))
    scan = big.iterator()
    next(scan)
    killed = executor.kill_host()
    with pytest.raises(Unavailable) as failure:
        list(scan)
    assert_says_what_and_where(failure.value, "a scan", executor)
    big.abort()
    assert_goes_on(query, executor, client, killed, hosts_folder)


def test_after_commit(executor, query, hosts_folder):
    client = executor.client()
    query.commit(client, 0, {"a": 1})
    with query.open(client, 1) as store:
        put(store, {"b": 2})
        assert store.commit() == 2
        executor.kill_host()
    assert store.has_committed
    assert store.metrics.num_keys == 2
    assert query.commit(client, 2, {"c": 3}) == 3
    assert query.read(client, 3) == query.stored(3) == rows(a=1, b=2, c=3)


def test_one_that_hangs_is_given_up(executor, query):
    client = executor.client(request_timeout="2s")
    query.commit(client, 0, {"a": 1})
    store = query.open(client, 1)
    hanging = executor.host_pid()
    os.kill(hanging, signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable) as failure:
            store.get(row("a"))
        store.abort()
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert_says_what_and_where(failure.value, "get of RemoteStateStore", executor)
    assert "within 2 s (spark.holdfast.host.requestTimeout)" in str(failure.value)
    assert query.commit(client, 1, {"b": 2}) == 2
    assert query.stored(2) == rows(a=1, b=2)
