"""Without its driver a host publishes nothing, and ends; a driver that comes back is served."""

from pathlib import Path

import pytest
from cluster import Driver, eventually, host_processes, is_alive, put, rows

from holdfast.errors import Fenced, Unavailable


class TestHostsEnd:
    @pytest.fixture
    def host_settings(self):
        return {"driver_timeout": "2s"}

    def test_within_the_bound_and_nothing_is_published_afterwards(
        self, executor, make_executor, driver, query, hosts_folder
    ):
        clients = [executor.client(), make_executor("2", driver).client()]
        for partition, client in enumerate(clients):
            query.commit(client, 0, {"x": 0}, partition=partition)
        stores = [query.open(client, 1, partition=partition) for partition, client in enumerate(clients)]
        for store in stores:
            put(store, {"x": 1})
        assert len(host_processes(hosts_folder)) == 2
        driver.stop()
        eventually(lambda: not host_processes(hosts_folder), "both hosts have ended", patience=20)
        for partition, store in enumerate(stores):
            with pytest.raises(Unavailable):
                store.commit()
            store.abort()
            assert files_of(query, partition) == {"1.delta"}
            assert query.stored(1, partition) == rows(x=0)
        assert [entry.name for entry in executor.place().base.iterdir()] == ["logs"]
        assert "Ended: the driver has not answered for" in executor.log()


def test_a_commit_without_a_driver_is_fenced(executor, driver, query):
    client = executor.client()
    query.commit(client, 0, {"x": 0})
    with query.open(client, 1) as store:
        put(store, {"x": 1})
        driver.stop()
        with pytest.raises(Fenced, match="the driver, who has to agree, gave no answer"):
            store.commit()
    assert not store.has_committed
    assert files_of(query, 0) == {"1.delta"}


def files_of(query, partition):
    """The versions that the checkpoint has, and what was left by those that are none."""
    return {file.name for file in Path(query.root, "1000", str(partition)).iterdir() if file.is_file()}


class TestRestart:
    @pytest.fixture
    def host_settings(self):
        return {"driver_timeout": "5s"}

    @pytest.fixture
    def restart(self, driver):
        """Restarts the driver on its port."""
        restarted = []

        def restart():
            driver.stop()
            restarted.append(Driver(driver.port))
            return restarted[-1]

        yield restart
        for each in restarted:
            each.stop()

    def test_with_a_new_token_old_hosts_end_and_new_ones_go_on(
        self, executor, make_executor, query, restart, hosts_folder
    ):
        client = executor.client()
        query.commit(client, 0, {"x": 0})
        with query.open(client, 1) as old:
            put(old, {"x": "old"})
            old_host = executor.host_pid()
            again = make_executor("1", restart())
            with pytest.raises(Fenced, match="gave no answer .*the token does not match"):
                old.commit()
            assert not old.has_committed
        assert query.commit(again.client(), 1, {"x": "new"}) == 2
        assert query.stored(2) == rows(x="new")
        assert again.host_pid() != old_host
        eventually(lambda: not is_alive(old_host), "the old host has ended")
        assert host_processes(hosts_folder) == [again.host_pid()]

    def test_with_the_same_token_hosts_report_again_and_old_grants_are_void(
        self, executor, driver, query, restart, monkeypatch
    ):
        monkeypatch.setattr("secrets.token_urlsafe", lambda _: driver.address.token)
        client = executor.client()
        query.commit(client, 0, {"x": 0})
        with query.open(client, 1) as old:
            put(old, {"x": "old"})
            host = executor.host_pid()
            again = restart().coordinator
            eventually(lambda: again.get_location(query.provider_id()), "the host has reported again")
            with pytest.raises(Fenced, match="is not known"):
                old.commit()
        assert query.commit(client, 1, {"x": "new"}) == 2
        assert query.stored(2) == query.read(client, 2) == rows(x="new")
        assert executor.host_pid() == host
        assert again.verify_if_instance_active(query.provider_id(), "1")
