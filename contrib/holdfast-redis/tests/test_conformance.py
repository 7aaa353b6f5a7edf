"""The whole kit, against the installed package and a real Redis."""

import pytest

from holdfast.conformance import Backend, ProviderContract


class TestRedis(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path, redis_server):
        return Backend("redis", str(tmp_path / "state"), conf=redis_server.conf)
