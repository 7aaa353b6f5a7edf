"""Logging in, TLS, and a connection or a server that is lost."""

import certificates
import pytest
from redis_server import PASSWORD, RedisServer, free_port
from relay import Relay

import holdfast
from holdfast.conformance import Backend
from holdfast.errors import CommitFailed, InvalidSetting, Unavailable

KEY, VALUE = b"k" * 16, b"v" * 16


def contents(provider, version):
    with provider.get_read_store(version) as store:
        return dict(store.iterator())


class Hook(holdfast.CommitGuard):
    """Allows everything, after doing something."""

    def __init__(self):
        self.asked = 0
        self.then = lambda: None

    def before_publish(self, store):
        self.asked += 1
        self.then()


@pytest.fixture
def relay(redis_server):
    relay = Relay(redis_server.port)
    yield relay
    relay.close()


@pytest.fixture
def backend(tmp_path, redis_server, relay):
    url = f"redis://127.0.0.1:{relay.port}/0"
    conf = {**redis_server.conf, "spark.holdfast.redis.url": url, "spark.holdfast.redis.timeout": "2s"}
    return Backend("redis", str(tmp_path / "state"), conf=conf)


@pytest.fixture
def direct(tmp_path, redis_server):
    provider = Backend("redis", str(tmp_path / "state"), conf=redis_server.conf).open()
    yield provider
    provider.close()


def test_a_commit_whose_answer_is_lost_is_not_made_twice(backend, relay, direct):
    guard = Hook()
    provider = backend.open(guard)
    with provider.get_store(0) as store:
        store.commit()  # from now on Redis knows the script: the next answer is that of the commit itself
    guard.then = relay.lose_next_answer
    with provider.get_store(1) as store:
        store.put(KEY, VALUE)
        assert store.commit() == 2
        identity = store.identity
    assert relay.lost == 1
    assert guard.asked == 2, "the second time it was found to be done, and nobody had to be asked"
    with direct.get_read_store(2, identity) as store:
        assert dict(store.iterator()) == {KEY: VALUE}
    provider.close()


def test_a_lost_answer_does_not_replace_a_faster_attempt_unasked(backend, relay, direct):
    guard = Hook()

    def another_attempt_and_no_answer():
        if guard.asked == 1:
            with direct.get_store(0) as other:
                other.put(KEY, b"other---")
                other.commit()
            relay.lose_next_answer()

    guard.then = another_attempt_and_no_answer
    provider = backend.open(guard)
    with provider.get_store(0) as store:
        store.put(KEY, VALUE)
        store.commit()
    assert guard.asked == 2
    assert contents(direct, 1) == {KEY: VALUE}
    provider.close()


def test_a_lost_connection_is_unavailable_and_the_commit_can_be_repeated(backend, relay, direct):
    guard = Hook()
    guard.then = relay.go
    provider = backend.open(guard)
    with provider.get_store(0) as store:
        store.put(KEY, VALUE)
        with pytest.raises(CommitFailed, match="does not answer"):
            store.commit()
        with pytest.raises(Unavailable, match="does not answer"):
            provider.get_read_store(1)
        guard.then = lambda: None
        relay.come_back()
        assert store.commit() == 1
    assert contents(direct, 1) == {KEY: VALUE}
    provider.close()


def test_reading_goes_on_over_a_new_connection(backend, relay):
    provider = backend.open()
    pairs = {KEY + number.to_bytes(8, "big"): VALUE for number in range(5000)}
    with provider.get_store(0) as store:
        store.put_many(list(pairs), list(pairs.values()))
        store.commit()
    with provider.get_read_store(1) as store:
        iterator = store.iterator()
        found = dict([next(iterator)])
        relay.go()
        relay.come_back()
        found.update(iterator)
        assert found == pairs
        relay.lose_next_answer()
        assert store.get_many(list(pairs)) == list(pairs.values())
        assert relay.lost == 1
    provider.close()


def test_committed_state_survives_the_death_of_the_server(tmp_path):
    server = RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always").start()
    try:
        guard = Hook()
        provider = Backend("redis", str(tmp_path / "state"), conf=server.conf).open(guard)
        for version in range(10):
            with provider.get_store(version) as store:
                store.put(KEY + bytes([version]), VALUE)
                store.commit()
        with provider.get_store(10) as store:
            store.put(KEY, VALUE)
            guard.then = server.kill
            with pytest.raises(CommitFailed, match="does not answer"):
                store.commit()
            guard.then = lambda: None
            server.start()
            with pytest.raises(holdfast.errors.MissingVersion):
                provider.get_read_store(11)
            assert store.commit() == 11
        assert contents(provider, 10) == {KEY + bytes([version]): VALUE for version in range(10)}
        assert contents(provider, 11) == {KEY: VALUE} | contents(provider, 10)
        provider.close()
    finally:
        server.stop()


def test_no_server(tmp_path):
    url = f"redis://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match="does not answer"):
        Backend("redis", str(tmp_path), conf={"spark.holdfast.redis.url": url}).open()


@pytest.mark.parametrize("password", [None, "wrong"])
def test_a_refused_login_names_the_settings_and_not_the_password(tmp_path, redis_server, password):
    conf = {"spark.holdfast.redis.url": redis_server.url}
    if password:
        conf["spark.holdfast.redis.password"] = password
    with pytest.raises(InvalidSetting, match=r"spark\.holdfast\.redis\.password") as refused:
        Backend("redis", str(tmp_path), conf=conf).open()
    assert "wrong" not in str(refused.value)


def test_a_user_of_ones_own(tmp_path, redis_server):
    client = redis_server.client()
    client.execute_command("ACL", "SETUSER", "spark", "on", ">secret", "~holdfast:*", "+@all", "-info")
    conf = {
        "spark.holdfast.redis.url": redis_server.url,
        "spark.holdfast.redis.username": "spark",
        "spark.holdfast.redis.password": "secret",
    }
    provider = Backend("redis", str(tmp_path), conf=conf).open()
    with provider.get_store(0) as store:
        store.put(KEY, VALUE)
        assert store.commit() == 1
    provider.close()
    elsewhere = Backend("redis", str(tmp_path), conf={**conf, "spark.holdfast.redis.namespace": "mine"}).open()
    with pytest.raises(InvalidSetting, match="refuses the user"):
        elsewhere.get_read_store(1)
    elsewhere.close()
    client.close()


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    server = RedisServer(folder / "redis", tls=certificates.make(folder)).start()
    yield server
    server.stop()


def test_tls(tmp_path, tls_server):
    provider = Backend("redis", str(tmp_path), conf=tls_server.conf).open()
    with provider.get_store(0) as store:
        store.put(KEY, VALUE)
        store.commit()
    assert contents(provider, 1) == {KEY: VALUE}
    provider.close()


def test_a_certificate_that_nobody_vouches_for(tmp_path, tls_server):
    conf = {key: value for key, value in tls_server.conf.items() if not key.endswith("tlsCaFile")}
    with pytest.raises(InvalidSetting, match=r"is not trusted.*spark\.holdfast\.redis\.tlsCaFile"):
        Backend("redis", str(tmp_path), conf=conf).open()


def test_a_certificate_for_another_name(tmp_path, tls_server):
    url = tls_server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(InvalidSetting, match="is not trusted"):
        Backend("redis", str(tmp_path), conf={**tls_server.conf, "spark.holdfast.redis.url": url}).open()


def test_a_ca_file_that_is_not_there(tmp_path, tls_server):
    conf = {**tls_server.conf, "spark.holdfast.redis.tlsCaFile": str(tmp_path / "none.pem")}
    with pytest.raises(InvalidSetting, match=r"tlsCaFile is '.*none\.pem', and there is no such file"):
        Backend("redis", str(tmp_path), conf=conf).open()


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({}, "url is not set"),
        ({"url": f"redis://:{PASSWORD}@host"}, "where logs would show them"),
        ({"url": "http://host"}, "accepted: redis://"),
        ({"url": "rediss://host?ssl_cert_reqs=none"}, "accepted: redis://"),
        ({"url": "redis://host", "tlsCaFile": "/ca.pem"}, "write rediss://"),
        ({"url": "redis://host", "pasword": "x"}, r"did you mean spark\.holdfast\.redis\.password"),
    ],
)
def test_settings_that_cannot_be_used(conf, message):
    prefixed = {f"spark.holdfast.redis.{key}": value for key, value in conf.items()}
    with pytest.raises(InvalidSetting, match=message) as refused:
        Backend("redis", "/nowhere", conf=prefixed).open()
    assert PASSWORD not in str(refused.value) or "pasword" in conf
