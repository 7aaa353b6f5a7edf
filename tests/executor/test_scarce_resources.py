"""A host without memory or without file descriptors says so, and goes on where it can."""

import resource
from pathlib import Path

import pytest
from cluster import host_processes, put, row, rows

from holdfast.errors import CommitFailed, Unavailable


def vm_size(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def limit(pid, what, number):
    resource.prlimit(pid, what, (number, resource.getrlimit(what)[1]))


def test_a_commit_without_memory_fails_alone(executor, query, control):
    client = executor.client()
    query.commit(client, 0, {"x": 0})
    with query.open(client, 1) as store:
        put(store, {"x": 1})
        control.at("publish.start", "memory")
        with pytest.raises(CommitFailed, match="Error committing version 2") as failure:
            store.commit()
        assert str(executor.place().log) in str(failure.value)
        assert store.commit() == 2, "committing again is safe"
    assert query.stored(2) == rows(x=1)


def test_a_host_that_runs_out_of_memory(executor, query, hosts_folder):
    client = executor.client()
    query.commit(client, 0, {"x": 0})
    pid = executor.host_pid()
    limit(pid, resource.RLIMIT_AS, vm_size(pid) + 64 * 1024**2)
    store = query.open(client, 1)

    def overfill():
        put(store, dict.fromkeys(range(2_000_000), 0))
        store.get(row("x"))

    with pytest.raises(Unavailable) as failure:
        overfill()
    assert str(executor.place().log) in str(failure.value)
    if pid in host_processes(hosts_folder):  # a library may also have given up, and the process with it
        assert "the state host is out of memory" in str(failure.value)
    store.abort()
    assert query.commit(client, 1, {"x": 1}) == 2
    assert query.stored(2) == rows(x=1)


def test_a_host_without_file_descriptors(executor, query, hosts_folder):
    client = executor.client()
    query.commit(client, 0, {"x": 0})
    pid = executor.host_pid()
    with query.open(client, 1) as store:
        put(store, {"x": 1})
        limit(pid, resource.RLIMIT_NOFILE, 3)  # those that are open stay, and none is added
        with pytest.raises(CommitFailed, match="Too many open files") as failure:
            store.commit()
        assert str(executor.place().log) in str(failure.value)
        limit(pid, resource.RLIMIT_NOFILE, 1024)
        assert store.commit() == 2
    assert query.stored(2) == rows(x=1)
    assert host_processes(hosts_folder) == [pid]
