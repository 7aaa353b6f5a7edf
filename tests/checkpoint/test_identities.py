"""Versions opened by those who know which of the possible contents they mean."""

import logging

import pytest

from holdfast.checkpoint.filesystems import Filesystem
from holdfast.conformance import Backend
from holdfast.errors import CorruptState


def row(text):
    return str(text).encode().ljust(8)


@pytest.fixture
def backend(tmp_path):
    return Backend("files", str(tmp_path / "state"))


@pytest.fixture
def storage_calls(monkeypatch):
    """What is asked of the filesystem."""
    seen = []
    call = Filesystem.call

    def counted(self, patience, doing, action, **more):
        seen.append(doing)
        return call(self, patience, doing, action, **more)

    monkeypatch.setattr(Filesystem, "call", counted)
    return seen


def commit(provider, version, text, identity=None):
    with provider.get_store(version, identity) as store:
        store.put(row("x"), row(text))
        store.commit()
        return store.identity


def test_a_known_version_at_hand_costs_no_storage_call(backend, storage_calls):
    provider = backend.open()
    identity = commit(provider, 0, "a")
    for version in range(1, 4):
        storage_calls.clear()
        with provider.get_store(version, identity) as store:
            assert storage_calls == []
            store.put(row("x"), row(version))
            store.commit()
            identity = store.identity
        with provider.get_read_store(version + 1, identity) as reader:
            assert reader.get(row("x")) == row(version)
        assert [call.partition(" ")[0] for call in storage_calls] == ["write"] * 3, "file, its name, its folder"


def test_one_that_another_executor_made_is_loaded(backend, storage_calls):
    here, there = backend.open(), backend.open()
    commit(here, 0, "here")
    identity = commit(there, 0, "there")
    with here.get_store(1, identity) as store:
        assert store.get(row("x")) == row("there")
        assert store.identity == identity
    storage_calls.clear()
    with here.get_store(1, identity):
        assert storage_calls == []


def test_a_late_writer_is_noticed(backend):
    provider, late = backend.open(), backend.open()
    identity = commit(provider, 0, "first")
    replaced = commit(late, 0, "late")
    for other in (late, backend.open()):
        with pytest.raises(CorruptState, match=f"version 1 of .*/0/0 is stored as {replaced}, but {identity} was"):
            other.get_store(1, identity)
    with late.get_store(1) as store:
        assert store.identity == replaced


def test_later_versions_of_a_late_writer_do_not_go_on_top(backend, caplog):
    provider, late = backend.open(), backend.open()
    commit(provider, 0, "a")
    with late.get_store(1) as store:
        store.put(row("x"), row("late"))
        identity = commit(provider, 1, "b")
        store.commit()
    identity = commit(provider, 2, "c", identity)
    with caplog.at_level(logging.WARNING), pytest.raises(CorruptState, match=r"3\.delta was made on another version"):
        backend.open().get_store(3, identity)


def test_a_version_whose_delta_is_gone_has_no_identity(backend, tmp_path):
    provider = backend.open()
    identity = commit(provider, 0, "a")
    provider._log.write_snapshot(1, {row("x"): row("a")}.items())
    (tmp_path / "state" / "0" / "0" / "1.delta").unlink()
    with backend.open().get_store(1, identity) as store:
        assert store.get(row("x")) == row("a"), "what is stored cannot be told apart, and is not another one"
        assert store.identity is None
