"""The lmdb backend passes the whole kit with its log on S3."""

import pytest

from holdfast.conformance import Backend, ProviderContract


class TestLmdbOnS3(ProviderContract):
    @pytest.fixture
    def backend(self, moto_server, tmp_path):
        conf = {"spark.holdfast.lmdb.localDir": str(tmp_path / "local")}
        return Backend("lmdb", moto_server.url(tmp_path.name, "state"), conf=conf, fs_options=moto_server.options)
