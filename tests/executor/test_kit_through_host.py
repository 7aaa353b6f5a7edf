"""The whole kit passes when every store lives in a state host and is used through the client."""

import sys
from pathlib import Path

import pytest

from holdfast.conformance import Backend, ProviderContract

sys.path.insert(0, str(Path(__file__).parent))  # where the kit's child processes find the hosted providers, too


@pytest.fixture(scope="session")
def host_folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("hosts"))


class TestMemoryThroughHost(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path, host_folder):
        return Backend("hosted.HostedMemory", str(tmp_path / "state"), conf={"spark.holdfast.host.folder": host_folder})


class TestFilesThroughHost(ProviderContract):
    @pytest.fixture
    def backend(self, tmp_path, host_folder):
        return Backend("hosted.HostedFiles", str(tmp_path / "state"), conf={"spark.holdfast.host.folder": host_folder})
