"""Every byte of the files of a state, damaged: what is read is right, or an error; never something else."""

import pytest

from holdfast.checkpoint.storage import Folder
from holdfast.conformance import Backend
from holdfast.errors import CorruptState, MissingVersion

KEYS = [f"key {number}".encode().ljust(16) for number in range(4)]
VERSIONS = 4


def right(version):
    """What a version holds: each changes all keys but one, which it removes."""
    return {key: f"value {version}".encode().ljust(24) for key in KEYS if key != KEYS[version % 4]}


@pytest.fixture(params=["lz4", "zstd"])
def backend(request, tmp_path):
    backend = Backend("files", f"memory:/{tmp_path}").with_conf(stateStore__compression__codec=request.param)
    provider = backend.open()
    for version in range(1, VERSIONS + 1):
        with provider.get_store(version - 1) as store:
            store.remove(KEYS[version % 4])
            store.put_many([*right(version)], [*right(version).values()])
            store.commit()
    return backend


@pytest.fixture
def folder(backend):
    return Folder.open(f"{backend.checkpoint_root}/0/0")


def add_snapshot(backend, version):
    provider = backend.open()
    with provider.get_store(version) as store:
        provider._log.write_snapshot(version, store.iterator())


def damaged(data):
    """Flip the lowest, the highest and all bits of each byte; end after each byte; go on after the last."""
    for position, byte in enumerate(data):
        before, after = data[:position], data[position + 1 :]
        for mask in (0x01, 0x80, 0xFF):
            yield f"byte {position} ^ {mask:#x}", before + bytes([byte ^ mask]) + after
        yield f"cut at {position}", before
    yield "a zero more", data + b"\0"
    yield "twice", data + data


def read(provider, version, identity=None):
    """What is in a version, or the error that says that it cannot be read."""
    try:
        with provider.get_read_store(version, identity) as store:
            return dict(store.iterator())
    except CorruptState as error:
        return error


@pytest.mark.parametrize("name", ["1.delta", "3.delta", "4.delta"])
def test_a_delta(backend, folder, name):
    intact = folder.read(name)
    detected = 0
    for what, data in damaged(intact):
        folder.publish(name, data)
        found = read(backend.open(), VERSIONS)
        if isinstance(found, CorruptState):
            assert not isinstance(found, MissingVersion), what
            assert f"0/0/{name}" in str(found) or "was made on another version" in str(found), what
            detected += 1
        else:
            assert found == right(VERSIONS), what
    assert detected > 3 * len(intact), "nearly all damage is noticed"
    folder.publish(name, intact)
    assert read(backend.open(), VERSIONS) == right(VERSIONS)


@pytest.mark.parametrize("replaceable", [True, False])
def test_a_snapshot(backend, folder, replaceable):
    add_snapshot(backend, 3)
    if not replaceable:
        folder.remove(["2.delta"])
    intact = folder.read("3.snapshot")
    detected = 0
    for what, data in damaged(intact):
        folder.publish("3.snapshot", data)
        provider = backend.open()
        found = read(provider, VERSIONS)
        if isinstance(found, CorruptState):
            assert not replaceable, what
            assert "0/0/3.snapshot" in str(found), what
            detected += 1
        else:
            assert found == right(VERSIONS), what
            detected += provider._log.snapshots_repaired
    assert detected > 3 * len(intact), "nearly all damage is noticed"


def test_those_who_know_the_version_notice_everything(backend, folder):
    with backend.open().get_read_store(VERSIONS) as store:
        identity = store.identity
    name = f"{VERSIONS}.delta"
    for what, data in damaged(folder.read(name)):
        folder.publish(name, data)
        assert isinstance(read(backend.open(), VERSIONS, identity), CorruptState), what
