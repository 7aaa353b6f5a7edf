"""The files backend passes the whole kit; object stores are with the tests of the checkpoint log."""

import pytest

from holdfast.conformance import Backend, ProviderContract


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
