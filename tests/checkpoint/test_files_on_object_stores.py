"""The default provider passes the whole kit on object stores, behind real HTTP servers."""

import pytest
from servers import SEAWEEDFS

from holdfast.conformance import Backend, ProviderContract


def on(server, tmp_path):
    return Backend("files", server.url(tmp_path.name, "state"), fs_options=server.options)


class TestFilesOnS3(ProviderContract):
    @pytest.fixture
    def backend(self, moto_server, tmp_path):
        return on(moto_server, tmp_path)


class TestFilesOnGcs(ProviderContract):
    @pytest.fixture
    def backend(self, gcs_server, tmp_path):
        return on(gcs_server, tmp_path)


@pytest.mark.parametrize("kind", [SEAWEEDFS])
class TestFilesOnSeaweedfs(ProviderContract):
    @pytest.fixture
    def backend(self, kind, request, tmp_path):
        return on(request.getfixturevalue("seaweedfs_server"), tmp_path)
