"""The whole kit, against the installed package."""

import pytest

from holdfast.conformance import Backend, ProviderContract


class TestInTheCheckpoint(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        return Backend("sqlite", str(tmp_path / "state"))


class TestInAFolderOfItsOwn(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        return Backend(
            "holdfast_sqlite.SqliteStateStoreProvider",
            "s3a://bucket/query/state",
            conf={"spark.holdfast.sqlite.directory": str(tmp_path / "databases")},
        )
