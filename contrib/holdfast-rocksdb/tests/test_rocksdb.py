"""What is particular to this backend."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.conformance import Backend
from holdfast.errors import CommitFailed, InvalidRequest, InvalidSetting, Unavailable
from holdfast_rocksdb import RocksDBStateStoreProvider
from holdfast_rocksdb.provider import local_folder

KEY, VALUE = b"k" * 16, b"v" * 16
SPARKS_NAME = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def local(tmp_path):
    return tmp_path / "local"


@pytest.fixture
def backend(tmp_path, local):
    return Backend("rocksdb", str(tmp_path / "state"), conf={"spark.holdfast.rocksdb.localDir": str(local)})


def numbered(number):
    return number.to_bytes(16, "big")


def commit(provider, version, value=VALUE, key=KEY):
    with provider.get_store(version) as store:
        store.put(key, value)
        return store.commit()


def contents(provider, version):
    with provider.get_read_store(version) as store:
        return dict(store.iterator())


def metric(provider, version, name):
    with provider.get_read_store(version) as store:
        return {metric.name: value for metric, value in store.metrics.custom_metrics.items()}[name]


def databases(local):
    return sorted(path.name for path in local.rglob("*.rocksdb"))


@pytest.mark.parametrize("name", ["rocksdb", SPARKS_NAME, "holdfast_rocksdb.RocksDBStateStoreProvider"])
def test_chosen_by_name(tmp_path, name):
    provider = Backend(name, str(tmp_path)).open()
    assert type(provider) is RocksDBStateStoreProvider
    provider.close()


def test_listed_by_the_command_line():
    shown = subprocess.run([sys.executable, "-m", "holdfast", "providers"], capture_output=True, text=True, check=True)
    assert "class         holdfast_rocksdb.RocksDBStateStoreProvider\n" in shown.stdout
    assert "spark.holdfast.rocksdb.blockCacheSize = 8m\n" in shown.stdout


def test_misspelt_setting():
    with pytest.raises(InvalidSetting, match=r"did you mean spark\.holdfast\.rocksdb\.localDir\?"):
        Backend("rocksdb", "/nowhere", conf={"spark.holdfast.rocksdb.localDirs": "/x"}).open()


def test_stores_never_share_a_folder():
    stores = [
        holdfast.StateStoreId(root, operator, 2, name)
        for root in ("/a", "/b")
        for operator in (1, 11)
        for name in ("default", "left")
    ]
    assert len({local_folder(store, "/local") for store in stores}) == len(stores)


def test_a_folder_that_cannot_be_one(backend, local):
    local.write_text("")
    with pytest.raises(InvalidRequest, match=r"set spark\.holdfast\.rocksdb\.localDir"):
        backend.open()


def test_a_temporary_database_goes_with_its_provider(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    provider = Backend("rocksdb", str(tmp_path / "state")).open()
    commit(provider, 0)
    assert list(tmp_path.glob("holdfast-rocksdb-*"))
    provider.close()
    assert not list(tmp_path.glob("holdfast-rocksdb-*"))


def test_a_restart_reads_nothing_from_the_log_again(backend):
    provider = backend.open()
    for version in range(5):
        commit(provider, version, numbered(version))
    provider.close()
    restarted = backend.open()
    assert contents(restarted, 5) == {KEY: numbered(4)}
    assert metric(restarted, 5, "loadedMapCacheMissCount") == 0
    assert metric(restarted, 5, "numDeltasRead") == 0
    restarted.close()


def test_the_batch_that_runs_again_after_a_restart_finds_its_version_locally(backend):
    provider = backend.open()
    for version in range(5):
        commit(provider, version, numbered(version), key=KEY + bytes([version % 2]))
    provider.close()
    restarted = backend.open()
    assert contents(restarted, 4) == {KEY + b"\x00": numbered(2), KEY + b"\x01": numbered(3)}
    assert metric(restarted, 4, "loadedMapCacheMissCount") == 0
    commit(restarted, 4, b"again" * 8, key=KEY + b"\x02")
    expected = {KEY + b"\x00": numbered(2), KEY + b"\x01": numbered(3), KEY + b"\x02": b"again" * 8}
    assert contents(restarted, 5) == expected
    restarted.close()


def test_a_database_that_is_behind_catches_up_by_deltas(backend, tmp_path):
    provider = backend.open()
    commit(provider, 0)
    provider.close()
    elsewhere = Backend("files", backend.checkpoint_root).open()
    for version in range(1, 4):
        commit(elsewhere, version, numbered(version))
    elsewhere.close()
    restarted = backend.open()
    assert contents(restarted, 4) == {KEY: numbered(3)}
    assert metric(restarted, 4, "numDeltasRead") == 3
    restarted.close()


def test_a_database_of_another_history_is_not_believed(backend, tmp_path):
    provider = backend.open()
    commit(provider, 0, b"lost" * 4)
    commit(provider, 1, b"lost" * 4, key=b"x" * 16)
    provider.close()
    shutil.rmtree(backend.checkpoint_root)
    elsewhere = Backend("files", backend.checkpoint_root).open()
    commit(elsewhere, 0)
    commit(elsewhere, 1)
    elsewhere.close()
    restarted = backend.open()
    for version in (1, 2):
        assert contents(restarted, version) == {KEY: VALUE}
    restarted.close()


def test_to_files_and_back(backend):
    history = {}
    for version, name in enumerate(["files", "rocksdb", "files", "rocksdb"]):
        provider = Backend(name, backend.checkpoint_root, conf=backend.conf).open()
        history[KEY + bytes([version])] = VALUE
        commit(provider, version, key=KEY + bytes([version]))
        assert contents(provider, version + 1) == history
        provider.close()


def test_a_damaged_database_is_thrown_away(backend, local, caplog):
    provider = backend.open()
    commit(provider, 0)
    provider.close()
    (manifest,) = local.rglob("MANIFEST-*")
    manifest.write_bytes(b"\xff" * 100)
    restarted = backend.open()
    assert "is made anew" in caplog.text
    assert contents(restarted, 1) == {KEY: VALUE}
    commit(restarted, 1, VALUE * 2)
    assert contents(restarted, 2) == {KEY: VALUE * 2}
    restarted.close()


def test_a_block_that_cannot_be_read_is_an_error_once_and_then_replaced(backend, local):
    provider = backend.open()
    keys = [KEY + number.to_bytes(4, "big") for number in range(5000)]
    with provider.get_store(0) as store:
        store.put_many(keys, [VALUE] * len(keys))
        store.commit()
    provider.close()  # writes everything out
    for file in local.rglob("*.sst"):
        content = bytearray(file.read_bytes())
        content[200:2000] = b"\xff" * 1800
        file.write_bytes(content)
    restarted = backend.open()
    with restarted.get_read_store(1) as store, pytest.raises(Unavailable, match="loaded from the checkpoint"):
        list(store.iterator())
    assert contents(restarted, 1) == dict.fromkeys(keys, VALUE)
    assert metric(restarted, 1, "rocksdbNumDiscarded") == 1
    restarted.close()


def test_a_commit_whose_local_part_fails_can_be_repeated(backend, local):
    provider = backend.open()
    keys = [KEY + number.to_bytes(4, "big") for number in range(5000)]
    with provider.get_store(0) as store:
        store.put_many(keys, [VALUE] * len(keys))
        store.commit()
    provider.close()
    for file in local.rglob("*.sst"):
        content = bytearray(file.read_bytes())
        content[200:2000] = b"\xff" * 1800
        file.write_bytes(content)
    restarted = backend.open()
    with restarted.get_store(1) as store:
        store.put_many(keys, [VALUE * 2] * len(keys))
        with pytest.raises(CommitFailed, match="RocksDB database"):
            store.commit()
    # The attempt's own view is of the damaged database, so the batch runs again.
    with restarted.get_store(1) as store:
        store.put_many(keys, [VALUE * 3] * len(keys))
        assert store.commit() == 2
    assert contents(restarted, 2) == dict.fromkeys(keys, VALUE * 3)
    restarted.close()


def test_two_providers_of_one_store_have_a_database_each(backend, local):
    first, second = backend.open(), backend.open()
    commit(first, 0)
    assert contents(second, 1) == {KEY: VALUE}
    assert databases(local) == ["0.rocksdb", "1.rocksdb"]
    second.close()
    first.close()
    assert databases(local) == ["0.rocksdb"]


def test_another_process_does_not_share_a_database(backend, local):
    code = (
        "import sys; from holdfast.conformance import Backend\n"
        "provider = Backend.from_json(sys.argv[1]).open()\n"
        "print('open', flush=True); sys.stdin.read(); provider.close()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, backend.to_json()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "open\n"
    provider = backend.open()
    assert databases(local) == ["0.rocksdb", "1.rocksdb"]
    commit(provider, 0)
    provider.close()
    child.communicate(timeout=60)
    assert child.returncode == 0


def test_an_iterator_that_outlives_its_provider_goes_on(backend):
    provider = backend.open()
    pairs = {KEY + bytes([number]): VALUE for number in range(200)}
    with provider.get_store(0) as store:
        store.put_many(list(pairs), list(pairs.values()))
        store.commit()
    store = provider.get_read_store(1)
    iterator = store.iterator()
    first = next(iterator)
    store.abort()
    provider.close()
    assert dict([first, *iterator]) == pairs


def test_a_closed_provider_says_so(backend):
    provider = backend.open()
    commit(provider, 0)
    provider.close()
    with pytest.raises(InvalidRequest, match="the provider is closed"):
        provider.get_read_store(1)


def test_sizes_are_measured(backend):
    provider = backend.open()
    commit(provider, 0)
    with provider.get_read_store(1) as store:
        assert store.metrics.memory_used_bytes > 0
    provider.close()
    restarted = backend.open()
    assert metric(restarted, 1, "rocksdbSstFileSize") > 0
    restarted.close()
    assert Path(backend.checkpoint_root, "0", "0", "1.delta").exists()
