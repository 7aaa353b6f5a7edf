"""The lmdb backend passes the whole kit."""

import pytest

from holdfast.conformance import Backend, ProviderContract


def local(tmp_path, **conf):
    more = {f"spark.holdfast.lmdb.{name}": value for name, value in conf.items()}
    return {"spark.holdfast.lmdb.localDir": str(tmp_path / "local"), **more}


class TestLmdb(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        return Backend("lmdb", str(tmp_path / "state"), conf=local(tmp_path))


class TestLmdbOverMemory(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path):
        return Backend("lmdb", f"memory:/{tmp_path}", conf=local(tmp_path), outlives_process=False)


class TestLmdbThatWritesAtOnce(ProviderContract):
    """Without an overlay every commit goes to LMDB, so crashes and versions made again meet its undo records."""

    @pytest.fixture
    def backend(self, tmp_path):
        conf = local(tmp_path, overlaySize="0")
        return Backend("lmdb_at_once.LmdbAtOnce", str(tmp_path / "state"), conf=conf)


class TestLmdbThatWritesInParts(ProviderContract):
    """Like a large commit: it takes several transactions, and a crash between two of them must leave no mixture."""

    @pytest.fixture
    def backend(self, tmp_path):
        conf = local(tmp_path, overlaySize="0")
        return Backend("lmdb_at_once.LmdbInParts", str(tmp_path / "state"), conf=conf)
