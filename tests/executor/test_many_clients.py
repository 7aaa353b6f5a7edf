"""Many clients at once, and clients that die."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from uuid import UUID

from cluster import eventually, host_processes, put, row, rows

CLIENTS = 200


def test_200_clients_at_once(executor, query, hosts_folder):
    all_open, all_written = Barrier(CLIENTS), Barrier(CLIENTS)

    clients = [executor.client() for _ in range(CLIENTS)]

    def first_batch(partition):
        with query.open(clients[partition], 0, partition, attempt=partition) as store:
            all_open.wait(100)
            put(store, {key: partition * key for key in range(500)})
            all_written.wait(100)
            assert store.get_many([row(499), row("none")]) == [row(499 * partition), None]
            assert len(dict(store.iterator())) == 500
            assert store.commit() == 1

    def second_batch(partition):
        with query.open(clients[partition], 1, partition, attempt=CLIENTS + partition) as store:
            assert store.get(row(7)) == row(7 * partition)
            store.remove(row(7))
            assert store.commit() == 2

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(first_batch, range(CLIENTS)))
        list(pool.map(second_batch, range(CLIENTS)))
    assert host_processes(hosts_folder) == [executor.host_pid()]
    for partition in range(0, CLIENTS, 20):
        expected = {row(key): row(partition * key) for key in range(500) if key != 7}
        assert query.stored(2, partition) == expected


def test_a_client_that_is_killed_leaves_no_transaction(executor, query, driver, control):
    client = executor.client()
    query.commit(client, 0, {"x": 0})
    with executor.children(query, 1) as [child]:
        child.kill()
        eventually(lambda: "its changes are dropped" in executor.log(), "the host has noticed")
    assert query.read(client, 1) == rows(x=0)
    assert query.commit(client, 1, {"x": 1}) == 2
    assert query.stored(2) == rows(x=1)
    assert "ERROR" not in executor.log()
    # Nothing holds the provider: it can be unloaded.
    driver.coordinator.deactivate_instances(UUID(int=query.run))
    eventually(lambda: control.events()[-1] == "closed", "the provider is unloaded")


def test_a_client_that_is_killed_during_its_commit_leaves_a_whole_version(executor, query, control):
    client = executor.client()
    query.commit(client, 0, {"x": 0})
    control.at("commit.before_publish", "wait")
    with executor.children(query, 1) as [child]:
        child.stdin.write("commit\n")
        child.stdin.flush()
        eventually(lambda: control.has_reached("commit.before_publish"), "the commit is under way")
        child.kill()
        child.wait()
    control.go_on()
    eventually(Path(query.root, "1000", "0", "2.delta").exists, "the commit is done")
    assert query.stored(2) == rows(x=0, child=2)
    assert query.commit(client, 1, {"x": 1}) == 2
    assert query.stored(2) == query.read(client, 2) == rows(x=1)
    assert "ERROR" not in executor.log()
