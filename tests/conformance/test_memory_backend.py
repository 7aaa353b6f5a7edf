"""The memory backend passes the whole kit."""

import pytest

from holdfast.conformance import Backend, ProviderContract


class TestMemory(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        return Backend("memory", str(tmp_path / "state"))
