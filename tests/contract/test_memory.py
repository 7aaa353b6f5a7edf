"""What is particular to the reference provider."""

import pytest

from holdfast.conformance import Backend
from holdfast.errors import InvalidRequest, MissingVersion


def commit(provider, version, key=b"k", value=b"v"):
    with provider.get_store(version) as store:
        store.put(key, value)
        return store.commit()


@pytest.fixture
def backend(tmp_path):
    return Backend("memory", str(tmp_path))


def test_missing_version_says_why_and_what_to_do(backend):
    provider = backend.open()
    with pytest.raises(MissingVersion, match="loses its state with its process.*providerClass"):
        provider.get_store(3)


@pytest.mark.parametrize(("configured", "kept"), [("0", 2), ("2", 2), ("5", 5)])
def test_versions_in_memory(backend, configured, kept):
    provider = backend.with_conf(maxBatchesToRetainInMemory=configured).open()
    for version in range(10):
        commit(provider, version, value=bytes([version]))
    for version in range(10 - kept + 1, 11):
        with provider.get_read_store(version) as store:
            assert store.get(b"k") == bytes([version - 1])
    with pytest.raises(MissingVersion):
        provider.get_read_store(10 - kept)


def test_memory_used_grows_with_the_state(backend):
    provider = backend.open()
    with provider.get_store(0) as store:
        before = store.metrics.memory_used_bytes
        store.put(b"k", b"v" * 100_000)
        store.commit()
        assert store.metrics.memory_used_bytes >= before + 100_000


def test_index_column_must_exist(backend):
    with pytest.raises(InvalidRequest, match="key_index_ordinal is 2, but the key has 2 columns"):
        backend.open(key_index_ordinal=2)


def test_repr_names_the_store(backend):
    with backend.open(operator_id=4, partition_id=2).get_store(0) as store:
        assert repr(store) == f"BufferedStateStore[id=(op=4,part=2),dir={backend.checkpoint_root}/4/2]"
