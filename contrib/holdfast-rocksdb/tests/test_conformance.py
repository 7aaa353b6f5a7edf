"""The whole kit, against the installed package."""

import pytest

from holdfast.conformance import Backend, ProviderContract


class TestInATemporaryFolder(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        return Backend("rocksdb", str(tmp_path / "state"))


class TestInALocalFolder(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        return Backend(
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
            str(tmp_path / "state"),
            conf={
                "spark.holdfast.rocksdb.localDir": str(tmp_path / "local"),
                "spark.sql.streaming.maxBatchesToRetainInMemory": "4",  # so that more than one version is undone
            },
        )
