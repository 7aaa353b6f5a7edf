"""The default provider: what it keeps, reads and writes, and what it says."""

import logging
from threading import Event, Thread

import pytest

from holdfast import CommitGuard
from holdfast.checkpoint.schema_files import read_state_schema
from holdfast.checkpoint.storage import Folder
from holdfast.conformance import Backend
from holdfast.errors import Fenced, InvalidRequest, InvalidSchema, MissingVersion, Unavailable
from holdfast.plugins.registry import installed_providers
from holdfast.rows import ddl
from holdfast_files import HDFSBackedStateStoreProvider
from holdfast_files.undo_map import UndoMap


def row(text):
    return str(text).encode().ljust(8)


@pytest.fixture
def backend(tmp_path):
    return Backend("files", str(tmp_path / "state"))


def commit(provider, version, puts, removes=()):
    with provider.get_store(version) as store:
        store.put_many(list(puts), list(puts.values()))
        store.remove_many(removes)
        return store.commit()


def read(provider, version):
    with provider.get_read_store(version) as store:
        return dict(store.iterator())


def values(provider):
    return {metric.name: number for metric, number in provider.custom_metric_values().items()}


@pytest.fixture
def reads(monkeypatch):
    """Names of the files that are read."""
    seen = []
    read_one, read_many = Folder.read, Folder.read_many
    monkeypatch.setattr(Folder, "read", lambda self, name: seen.append(name) or read_one(self, name))
    monkeypatch.setattr(Folder, "read_many", lambda self, names: seen.extend(names) or read_many(self, names))
    return seen


def test_it_is_what_sparks_default_means():
    default = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    assert installed_providers().resolve(default) is HDFSBackedStateStoreProvider


def test_it_says_what_the_original_says(backend, caplog):
    provider = backend.open(operator_id=3, partition_id=5)
    with caplog.at_level(logging.INFO):
        with provider.get_store(0) as store:
            shown = f"HDFSStateStore[id=(op=3,part=5),dir={backend.checkpoint_root}/3/5]"
            assert repr(store) == shown
            store.put(row("a"), row("1"))
            store.commit()
        with provider.get_store(1) as store:
            store.put(row("a"), row("2"))
    assert f"Committed version 1 for {shown} to file {backend.checkpoint_root}/3/5/1.delta" in caplog.text
    assert f"Aborted version 2 for {shown}" in caplog.text


def test_no_file_before_the_commit(backend, tmp_path):
    with backend.open().get_store(0) as store:
        store.put(row("a"), row("1"))
        assert not list(tmp_path.rglob("*.*"))
        store.commit()
    assert [path.name for path in tmp_path.rglob("*.*")] == ["1.delta"]


def test_the_next_batch_loads_nothing(backend, reads):
    provider = backend.open()
    for version in range(5):
        commit(provider, version, {row(version): row(version)})
    # One delta per open is read to see whether another executor made that version again.
    assert sorted(set(reads) - {"schema"}) == ["1.delta", "2.delta", "3.delta", "4.delta"]
    assert values(provider)["loadedMapCacheMissCount"] == 0
    assert values(provider)["numDeltasRead"] == 0


def test_two_versions_behind_costs_two_deltas_and_no_snapshot(backend, reads):
    ahead, behind = backend.open(), backend.open()
    for version in range(4):
        commit(ahead, version, {row(version): row(version)})
    assert len(read(behind, 4)) == 4
    with ahead.get_store(4):
        pass
    ahead._log.write_snapshot(4, read(ahead, 4).items())
    for version in range(4, 6):
        commit(ahead, version, {row(version): row(version)})
    before = values(behind)["numDeltasRead"]
    reads.clear()
    assert len(read(behind, 6)) == 6
    assert values(behind)["numDeltasRead"] - before == 2
    assert not [name for name in reads if name.endswith(".snapshot")]


def test_a_look_into_the_past_does_not_unload_the_present(backend, reads):
    provider = backend.open()
    for version in range(10):
        commit(provider, version, {row(version): row(version)})
    misses = values(provider)["loadedMapCacheMissCount"]
    assert len(read(provider, 3)) == 3
    assert values(provider)["loadedMapCacheMissCount"] == misses + 1
    assert len(read(provider, 10)) == 10
    assert values(provider)["loadedMapCacheMissCount"] == misses + 1


def test_a_new_provider_takes_the_snapshot(backend, reads):
    provider = backend.with_conf(stateStore__minDeltasForSnapshot="5").open()
    for version in range(30):
        commit(provider, version, {row(version): row(version)})
    provider.do_maintenance()
    reads.clear()
    assert len(read(backend.open(), 30)) == 30
    assert sorted(set(reads) - {"schema"}) == ["29.snapshot", "30.delta"]


def test_catching_up_over_a_damaged_delta_takes_the_snapshot(backend):
    behind, ahead = backend.open(), backend.with_conf(stateStore__minDeltasForSnapshot="1").open()
    for version in range(8):
        commit(ahead, version, {row(version): row(version)})
        if version == 2:
            assert len(read(behind, 3)) == 3
    with ahead.get_store(8):
        ahead.do_maintenance()
    folder = Folder.open(f"{backend.checkpoint_root}/0/0")
    folder.publish("5.delta", b"damaged")
    assert len(read(behind, 8)) == 8


def test_versions_that_differ_only_below_are_told_apart(backend):
    lingering, other = backend.open(), backend.open()
    for provider, text in ((lingering, "old"), (other, "new")):
        commit(provider, 0, {row("x"): row(text)})
        commit(provider, 1, {})
    assert read(lingering, 2) == {row("x"): row("new")}


@pytest.mark.parametrize("in_memory", ["0", "1", "2"])
def test_maintenance_keeps_the_log_short_beside_a_writer(backend, tmp_path, in_memory):
    frugal = backend.with_conf(
        maxBatchesToRetainInMemory=in_memory, minBatchesToRetain="3", stateStore__minDeltasForSnapshot="2"
    )
    provider = frugal.open()
    stop = Event()

    def maintain():
        while not stop.is_set():
            provider.do_maintenance()

    thread = Thread(target=maintain)
    thread.start()
    try:
        for version in range(150):
            commit(provider, version, {row(version % 10): row(version)})
    finally:
        stop.set()
        thread.join()
    # The thread may not have had its turn for a while. A snapshot and the versions after it, and all is short again.
    for version in range(150, 156):
        commit(provider, version, {row(version % 10): row(version)})
        provider.do_maintenance()
    assert len(list(tmp_path.rglob("*.*"))) < 15
    assert len(read(frugal.open(), 156)) == 10


def test_what_a_crash_left_unfinished_goes_with_its_version(backend, tmp_path):
    frugal = backend.with_conf(minBatchesToRetain="1", stateStore__minDeltasForSnapshot="1")
    provider = frugal.open()
    commit(provider, 0, {row("a"): row("1")})
    leftover = tmp_path / "state" / "0" / "0" / ".1.delta.0123456789abcdef.tmp"
    leftover.write_bytes(b"half")
    for version in range(1, 8):
        commit(provider, version, {row("a"): row(version)})
        provider.do_maintenance()
    assert not leftover.exists()


def test_a_fenced_first_commit_leaves_nothing(backend, tmp_path):
    class Refuse(CommitGuard):
        def before_publish(self, store):
            raise Fenced("not you")

    with backend.open(Refuse()).get_store(0) as store:
        store.put(row("a"), row("1"))
        with pytest.raises(Fenced):
            store.commit()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_maintenance_snapshots_only_what_is_final(backend, tmp_path):
    provider = backend.with_conf(stateStore__minDeltasForSnapshot="2").open()
    for version in range(4):
        commit(provider, version, {row(version): row(version)})
    provider.do_maintenance()
    names = {path.name for path in tmp_path.rglob("*.snapshot")}
    assert names == {"3.snapshot"}, "version 4 may still be made again, version 3 has been built upon"
    assert len(read(backend.open(), 4)) == 4


@pytest.mark.parametrize("moment", ["before the snapshot is written", "before it is checked"])
def test_a_snapshot_of_a_version_that_a_later_run_replaces(backend, tmp_path, monkeypatch, moment):
    old_run = backend.with_conf(stateStore__minDeltasForSnapshot="1").open()
    for version in range(3):
        commit(old_run, version, {row(version): row("old")})
    with old_run.get_store(3):
        pass
    new_run = backend.open()
    write_snapshot = old_run._log.write_snapshot

    def interrupted(version, pairs):
        pairs = list(pairs)
        if moment == "before it is checked":
            size = write_snapshot(version, pairs)
            commit(new_run, 2, {row("x"): row("new")})
            return size
        commit(new_run, 2, {row("x"): row("new")})
        return write_snapshot(version, pairs)

    monkeypatch.setattr(old_run._log, "write_snapshot", interrupted)
    old_run.do_maintenance()
    assert read(backend.open(), 3) == {row(0): row("old"), row(1): row("old"), row("x"): row("new")}
    assert not list(tmp_path.rglob("*.snapshot"))


def test_failing_maintenance_is_logged_and_harmless(backend, monkeypatch, caplog):
    provider = backend.with_conf(stateStore__minDeltasForSnapshot="1").open()
    for version in range(4):
        commit(provider, version, {row(version): row(version)})

    def fail(*_):
        raise Unavailable("the disk is full")

    monkeypatch.setattr(Folder, "publish", fail)
    provider.do_maintenance()
    assert "Error performing snapshot and cleaning up HDFSBackedStateStoreProvider[id=(op=0,part=0)" in caplog.text
    assert "the disk is full" in caplog.text
    assert len(read(provider, 4)) == 4


def test_a_chain_that_begins_later_has_a_beginning(backend, tmp_path):
    provider = backend.open(operator_id=1000)
    provider.start_at(7)
    commit(provider, 7, {row("a"): row("1")})
    commit(provider, 8, {row("b"): row("2")})
    names = [path.name for path in (tmp_path / "state" / "1000" / "0").iterdir()]
    assert sorted(names) == ["7.snapshot", "8.delta", "9.delta", "_metadata"]
    assert read(backend.open(operator_id=1000), 9) == {row("a"): row("1"), row("b"): row("2")}
    with pytest.raises(InvalidRequest, match="has state already, up to version 9"):
        provider.start_at(9)


def test_size_follows_the_changes(backend):
    provider = backend.open()
    commit(provider, 0, {row("a"): row("1"), row("b"): b"x" * 80})
    assert values(provider)["stateOnCurrentVersionSizeBytes"] == 8 + 8 + 8 + 80
    commit(provider, 1, {row("a"): b"y" * 16, row("c"): row("3")}, removes=[row("b"), row("never there")])
    assert values(provider)["stateOnCurrentVersionSizeBytes"] == 8 + 16 + 8 + 8
    commit(provider, 0, {row("a"): row("1")})
    assert values(provider)["stateOnCurrentVersionSizeBytes"] == 16


def test_the_checkpoint_that_is_gone(backend, tmp_path):
    import shutil

    provider = backend.open()
    commit(provider, 0, {row("a"): row("1")})
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(MissingVersion, match=r"1\.delta is missing"):
        provider.get_store(1)


# The schema


def test_the_schema_is_where_spark_puts_it(backend, tmp_path):
    for partition in (1, 0):
        commit(backend.open(partition_id=partition), 0, {row("a"): row("1")})
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("schema")] == ["state/0/0/_metadata/schema"]
    stored = read_state_schema(Folder.open(f"{backend.checkpoint_root}/0/0"))
    assert ddl(stored.key) == "name string, part int"
    assert ddl(stored.value) == "n bigint, text string"


def test_another_schema_is_refused_with_both(backend):
    commit(backend.open(value_schema="n long not null, m map<string, array<int>>"), 0, {row("a"): row("1")})
    backend.open(value_schema="total long, m map<string, array<int>>")
    for partition in (0, 3):
        with pytest.raises(InvalidSchema) as refused:
            backend.open(partition_id=partition, value_schema="n string, m map<string, array<int>>")
        assert "n bigint" in str(refused.value)
        assert "n string" in str(refused.value)


# The map


def test_views_stay_right_whatever_happens():
    state = UndoMap(2)
    state.apply(1, "one", {b"a": b"1", b"b": b"1"})
    one = state.view(1)
    state.apply(2, "two", {b"a": b"2", b"b": None, b"c": b"2"})
    two = state.view(2)
    for version in range(3, 8):
        state.apply(version, None, {b"a": str(version).encode()})
    assert set(state.identities()) == {6, 7}
    assert dict(one.entries()) == {b"a": b"1", b"b": b"1"}
    assert dict(two.entries()) == {b"a": b"2", b"c": b"2"}
    assert one.get_many([b"a", b"b", b"c"]) == [b"1", b"1", None]
    assert (one.num_keys(), two.num_keys()) == (2, 2)
    six = state.view(6)
    state.apply(7, "again", {b"d": b"7"})
    assert dict(six.entries()) == {b"a": b"6", b"c": b"2"}
    assert dict(state.view(7).entries()) == {b"a": b"6", b"c": b"2", b"d": b"7"}
    state.reset(20, "new", [(b"z", b"z")])
    assert dict(one.entries()) == {b"a": b"1", b"b": b"1"}
    assert dict(six.entries()) == {b"a": b"6", b"c": b"2"}


def test_memory_counts_what_can_be_undone():
    state = UndoMap(2)
    state.apply(1, None, {b"a": b"x" * 100_000})
    state.apply(2, None, {b"a": b"y"})
    assert state.memory_used_bytes() > 100_000
    state.apply(3, None, {b"a": b"z"})
    assert state.memory_used_bytes() < 10_000
    state.apply(4, None, {b"a": b"x" * 100_000})
    state.apply(4, None, {b"a": b"z"})
    assert state.memory_used_bytes() < 10_000


def test_undo_records_go_when_nobody_needs_them():
    state = UndoMap(2)
    state.apply(1, None, {b"a": b"1"})
    view = state.view(1)
    for version in range(2, 10):
        state.apply(version, None, {b"a": bytes([version])})
    assert len(state._state.undo) == 8
    view.close()
    state.apply(10, None, {b"a": b"x"})
    assert len(state._state.undo) == 1
