"""The built-in backends pass the whole kit."""

import pytest

from holdfast.conformance import Backend, ProviderContract


class TestMemory(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        return Backend("memory", str(tmp_path / "state"))


class TestFilesOnLocalDisk(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        return Backend("files", str(tmp_path / "state"))


class TestFilesInMemory(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        return Backend("files", f"memory:/{tmp_path}", outlives_process=False)


class TestFilesWithZstd(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        conf = {"spark.sql.streaming.stateStore.compression.codec": "zstd"}
        return Backend("files", str(tmp_path / "state"), conf=conf)
