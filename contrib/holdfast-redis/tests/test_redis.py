"""What is particular to this backend."""

import subprocess
import sys

import pytest
from redis_server import PASSWORD, RedisServer

import holdfast
from holdfast.conformance import Backend
from holdfast.errors import CommitFailed, CorruptState, Fenced, IllegalState, InvalidRequest, MissingVersion
from holdfast_redis import RedisSettings, RedisStateStoreProvider
from holdfast_redis.keyspace import key_prefix

KEY, VALUE = b"k" * 16, b"v" * 16


@pytest.fixture
def client(redis_server):
    client = redis_server.client()
    yield client
    client.close()


@pytest.fixture
def backend(tmp_path, redis_server):
    return Backend("redis", str(tmp_path / "state"), conf=redis_server.conf)


@pytest.fixture
def provider(backend):
    provider = backend.open()
    yield provider
    provider.close()


def commit(provider, version, pairs):
    with provider.get_store(version) as store:
        store.put_many(list(pairs), list(pairs.values()))
        return store.commit()


def contents(provider, version):
    with provider.get_read_store(version) as store:
        return dict(store.iterator())


def names(client, provider):
    """The keys of a store, without what they all begin with."""
    prefix = provider.location.partition(" ")[2].removesuffix("*")
    return {key.decode().removeprefix(prefix) for key in client.scan_iter() if key.decode().startswith(prefix)}


def key_of(provider, name):
    return provider.location.partition(" ")[2].removesuffix("*") + name


@pytest.mark.parametrize("name", ["redis", "holdfast_redis.RedisStateStoreProvider"])
def test_chosen_by_name(backend, name):
    provider = Backend(name, backend.checkpoint_root, conf=backend.conf).open()
    assert type(provider) is RedisStateStoreProvider
    provider.close()


def test_listed_by_the_command_line():
    shown = subprocess.run([sys.executable, "-m", "holdfast", "providers"], capture_output=True, text=True, check=True)
    assert "class         holdfast_redis.RedisStateStoreProvider\n" in shown.stdout
    assert "spark.holdfast.redis.namespace = holdfast\n" in shown.stdout


def test_the_password_is_not_shown(provider):
    settings = RedisSettings.parse({"spark.holdfast.redis.password": PASSWORD})
    assert settings.password == PASSWORD
    assert PASSWORD not in f"{settings!r} {provider.location} {provider.get_read_store(0)!r}"


def test_namespaces_are_apart(backend, provider):
    conf = {**backend.conf, "spark.holdfast.redis.namespace": "other"}
    other = Backend("redis", backend.checkpoint_root, conf=conf).open()
    commit(provider, 0, {KEY: VALUE})
    with pytest.raises(MissingVersion, match="it has no version yet"):
        other.get_read_store(1)
    assert other.location.partition(" ")[2].startswith("other:{")
    other.close()


def test_stores_never_share_a_key():
    stores = [
        holdfast.StateStoreId(root, operator, partition, name)
        for root in ("/a", "/b")
        for operator, partition in ((1, 11), (11, 1))
        for name in ("default", "left")
    ]
    prefixes = {key_prefix("holdfast", store) for store in stores}
    assert len(prefixes) == len(stores)
    assert not [(a, b) for a in prefixes for b in prefixes if a != b and a.startswith(b)]


def test_a_commit_leaves_nothing_but_the_version(client, provider):
    commit(provider, 0, {KEY: VALUE})
    commit(provider, 1, {KEY: VALUE * 2})
    assert names(client, provider) == {"versions", "pairs", "undo:2"}
    with provider.get_store(2) as store:
        store.remove(b"absent--")
        store.commit()
    assert names(client, provider) == {"versions", "pairs", "undo:2"}, "there is nothing to undo"


def test_what_an_attempt_staged_goes_with_it(client, backend):
    class Refusing(holdfast.CommitGuard):
        def before_publish(self, store):
            raise Fenced("no")

    provider = backend.open(Refusing())
    with provider.get_store(0) as store:
        store.put(KEY, VALUE)
        with pytest.raises(Fenced):
            store.commit()
    assert names(client, provider) == set()
    provider.close()


def test_what_a_killed_attempt_staged_expires(client, backend):
    staged = []

    class Looking(holdfast.CommitGuard):
        def before_publish(self, store):
            staged.extend((name, client.ttl(key_of(provider, name))) for name in names(client, provider))

    provider = backend.open(Looking())
    commit(provider, 0, {KEY: VALUE})
    ((name, seconds),) = staged
    assert name.startswith("staged:")
    assert 0 < seconds <= 3600
    provider.close()


def test_staged_changes_that_are_lost_do_not_become_an_empty_commit(client, backend):
    class Sabotage(holdfast.CommitGuard):
        active = True

        def before_publish(self, store):
            if self.active:
                client.delete(*(key_of(provider, name) for name in names(client, provider)))

    guard = Sabotage()
    provider = backend.open(guard)
    with provider.get_store(0) as store:
        store.put(KEY, VALUE)
        with pytest.raises(CommitFailed, match="was lost before the commit"):
            store.commit()
        guard.active = False
        assert store.commit() == 1
    assert contents(provider, 1) == {KEY: VALUE}
    provider.close()


def test_maintenance_removes_what_no_version_needs(client, backend):
    provider = backend.with_conf(minBatchesToRetain="3").open()
    for version in range(10):
        commit(provider, version, {KEY: version.to_bytes(8, "big"), bytes([version]) * 8: VALUE})
    provider.do_maintenance()
    assert names(client, provider) == {"versions", "pairs", "undo:9", "undo:10"}
    kept = {name.decode() for name in client.hkeys(key_of(provider, "versions"))}
    assert kept == {"newest", "oldest", "8", "9", "10"}
    for version in (8, 9, 10):
        found = contents(provider, version)
        assert found[KEY] == (version - 1).to_bytes(8, "big")
        assert len(found) == version + 1
    with pytest.raises(MissingVersion, match="it has 8 to 10"):
        provider.get_read_store(7)
    commit(provider, 8, {KEY: VALUE})
    assert contents(provider, 9)[KEY] == VALUE
    provider.close()


def test_two_versions_are_kept_whatever_is_configured(backend):
    provider = backend.with_conf(minBatchesToRetain="1").open()
    for version in range(5):
        commit(provider, version, {KEY: version.to_bytes(8, "big")})
        provider.do_maintenance()
    assert [contents(provider, version)[KEY][-1] for version in (4, 5)] == [3, 4]
    provider.close()


def test_more_keys_than_a_script_takes_at_once(provider):
    pairs = {number.to_bytes(8, "big"): number.to_bytes(16, "big") for number in range(25_000)}
    commit(provider, 0, pairs)
    commit(provider, 1, dict.fromkeys(pairs, VALUE))
    with provider.get_store(2) as store:
        store.remove_many(list(pairs))
        store.commit()
        assert store.metrics.num_keys == 0
    with provider.get_read_store(1) as store:
        assert store.get_many(list(pairs)) == list(pairs.values())
    assert contents(provider, 1) == pairs
    assert contents(provider, 2) == dict.fromkeys(pairs, VALUE)
    assert contents(provider, 3) == {}
    commit(provider, 1, {KEY: VALUE})
    assert contents(provider, 2) == pairs | {KEY: VALUE}


def test_an_iterator_shows_its_version_while_others_change_everything(provider, backend):
    pairs = {number.to_bytes(8, "big"): VALUE for number in range(5000)}
    commit(provider, 0, pairs)
    other = backend.open()
    with provider.get_read_store(1) as store:
        iterator = store.iterator()
        found = [next(iterator) for _ in range(10)]
        for step in range(6):
            # Removed and put back, so that Redis's scan alone would miss or repeat keys.
            with other.get_store(1) as changing:
                changing.remove_many(list(pairs)[step::2])
                changing.put_many([KEY + bytes([step])], [VALUE])
                changing.commit()
            found.extend(next(iterator) for _ in range(400))
        found.extend(iterator)
    assert len(found) == len(pairs)
    assert dict(found) == pairs
    other.close()


def test_a_version_made_again_stops_who_still_reads_it(provider, backend):
    commit(provider, 0, {KEY: VALUE})
    other = backend.open()
    with provider.get_store(1) as store:
        iterator = store.iterator()
        commit(other, 0, {KEY: VALUE * 2})
        for read in (lambda: store.get(KEY), lambda: list(iterator), lambda: list(store.iterator())):
            with pytest.raises(Fenced, match="was made again"):
                read()
    other.close()


@pytest.mark.parametrize("name", ["pairs", "undo:2"])
def test_state_that_somebody_removed_does_not_read_as_empty(client, provider, name):
    commit(provider, 0, {KEY: VALUE})
    commit(provider, 1, {KEY: VALUE * 2})
    client.delete(key_of(provider, name))
    with pytest.raises(CorruptState, match=f"{name} in Redis.*has lost entries"):
        provider.get_read_store(1)


def test_a_key_of_somebody_else(client, provider):
    client.set(key_of(provider, "versions"), "mine")
    with pytest.raises(CorruptState, match=r"spark\.holdfast\.redis\.namespace"):
        provider.get_read_store(1)


def test_a_closed_provider_says_so(backend):
    provider = backend.open()
    commit(provider, 0, {KEY: VALUE})
    store = provider.get_read_store(1)
    iterator = store.iterator()
    provider.close()
    for read in (lambda: store.get(KEY), lambda: list(iterator), lambda: provider.get_read_store(1)):
        with pytest.raises(IllegalState, match="closed with its provider"):
            read()


@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
def test_a_full_server(tmp_path, policy):
    server = RedisServer(tmp_path / "redis", "--maxmemory", "8mb", "--maxmemory-policy", policy).start()
    backend = Backend("redis", str(tmp_path / "state"), conf=server.conf)
    try:
        if policy != "noeviction":
            with pytest.raises(InvalidRequest, match="set maxmemory-policy to noeviction"):
                backend.open()
            return
        provider = backend.open()
        commit(provider, 0, {KEY: VALUE})
        with provider.get_store(1) as store:
            store.put_many([number.to_bytes(8, "big") for number in range(5000)], [b"v" * 8000] * 5000)
            with pytest.raises(CommitFailed, match="cannot do this now: .*maxmemory"):
                store.commit()
        assert contents(provider, 1) == {KEY: VALUE}
        with pytest.raises(MissingVersion):
            provider.get_read_store(2)
        commit(provider, 1, {KEY: VALUE * 2})
        assert contents(provider, 2) == {KEY: VALUE * 2}
        provider.close()
    finally:
        server.stop()
