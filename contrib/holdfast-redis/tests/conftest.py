"""The server that the tests share."""

import pytest
from redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("redis") / "shared").start()
    yield server
    server.stop()
