"""What is particular to this backend."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.conformance import Backend
from holdfast.errors import CommitFailed, InvalidRequest, InvalidSetting, Unavailable
from holdfast.rows import RowCodec
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


MEMORY_OF_A_LOAD = """
import sys
from pathlib import Path
from threading import Event, Thread
from holdfast.conformance import Backend

def private():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) << 10

provider = Backend.from_json(sys.argv[1]).open()
before, most, done = private(), [0], Event()
def watch():
    while not done.wait(0.002):
        most[0] = max(most[0], private())
watcher = Thread(target=watch)
watcher.start()
provider.get_read_store(int(sys.argv[2])).abort()
provider.get_store(int(sys.argv[2])).abort()
provider.do_maintenance()
done.set(); watcher.join()
print(most[0] - before)
provider.close()
"""


def test_loading_and_snapshots_do_not_hold_the_store_in_memory(backend, local):
    """The values are large and all alike, so that the files are small and what is held would show."""
    small = backend.with_conf(stateStore__minDeltasForSnapshot="1", stateStore__compression__codec="lz4")
    provider = small.open()
    count, size, versions = 1000, 16 << 10, 12
    for version in range(versions):
        keys = [numbered(version * count + number) for number in range(count)]
        with provider.get_store(version) as store:
            store.put_many(keys, [bytes(size)] * count)
            store.commit()
    provider.close()
    shutil.rmtree(local)
    command = [sys.executable, "-c", MEMORY_OF_A_LOAD, small.to_json(), str(versions)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert any(path.suffix == ".snapshot" for path in Path(backend.checkpoint_root).rglob("*"))
    assert int(shown.stdout) < versions * count * size * 0.8
    restarted = small.open()
    with restarted.get_read_store(versions) as store:
        assert store.metrics.num_keys == versions * count
    restarted.close()


def test_a_load_counts_keys_that_deltas_change_and_remove(backend, local):
    elsewhere = Backend("files", backend.checkpoint_root).open()
    commit(elsewhere, 0)
    commit(elsewhere, 1, VALUE * 2)
    with elsewhere.get_store(2) as store:
        store.put(numbered(1), VALUE)
        store.remove(KEY)
        store.remove(numbered(2))
        store.commit()
    elsewhere.close()
    provider = backend.open()
    with provider.get_read_store(3) as store:
        assert dict(store.iterator()) == {numbered(1): VALUE}
        assert store.metrics.num_keys == 1
    provider.close()


def test_scans_read_little_more_than_they_show(backend, local):
    schema = "user string, at long"
    at = RowCodec(schema).encode_one
    pairs = {at((f"u{number % 100}", number)): VALUE for number in range(10_000)}
    later = {at(("u5", 10_000 + number)): VALUE for number in range(100)}
    start, end, user = at((None, 9_990)), at((None, 10_009)), RowCodec("user string").encode_one(["u5"])

    def check(provider):
        view = provider.open_view(2)
        assert len(list(view.range_entries(start, end))) == 20
        assert len(list(view.prefix_entries(user, 1))) == 200
        view.close()
        view = provider.open_view(1)
        assert dict(view.range_entries(start, end)).keys() == {key for key in pairs if key_at(key) >= 9_990}
        assert len(list(view.prefix_entries(user, 1))) == 100
        view.close()

    def key_at(key):
        return RowCodec(schema).decode_one(key)[1]

    provider = backend.open(key_schema=schema, key_index_ordinal=1)
    for version, changes in enumerate((pairs, later)):
        with provider.get_store(version) as store:
            store.put_many(list(changes), list(changes.values()))
            store.commit()
    check(provider)
    # Made again: what the first try added is gone from the indexes, and what it removed is back.
    with provider.get_store(1) as store:
        store.remove_many(list(pairs)[9_990:])
        store.commit()
    view = provider.open_view(2)
    assert not list(view.range_entries(start, end))
    view.close()
    with provider.get_store(1) as store:
        store.put_many(list(later), list(later.values()))
        store.commit()
    check(provider)
    provider.close()
    shutil.rmtree(local)
    loaded = backend.open(key_schema=schema, key_index_ordinal=1)
    loaded.get_store(1).abort()
    loaded.get_store(2).abort()
    check(loaded)
    loaded.close()


def test_what_stores_that_moved_away_left_is_removed(backend, local):
    conf = {**backend.conf, "spark.holdfast.rocksdb.keepUnused": "0"}
    swept = Backend("rocksdb", backend.checkpoint_root, conf=conf)
    gone, stays = swept.open(partition_id=1), swept.open(partition_id=2)
    commit(gone, 0)
    commit(stays, 0)
    stays.do_maintenance()
    assert len(databases(local)) == 2, "a database in use was removed"
    gone.close()
    stays.do_maintenance()
    assert len(databases(local)) == 1
    assert len(list(local.glob("*/*/*"))) == 1, "empty folders are left"
    assert contents(stays, 1) == {KEY: VALUE}
    again = swept.open(partition_id=1)
    assert contents(again, 1) == {KEY: VALUE}
    again.close()
    stays.close()


def test_unused_databases_are_kept_by_default(backend, local):
    gone, stays = backend.open(partition_id=1), backend.open(partition_id=2)
    commit(gone, 0)
    gone.close()
    stays.do_maintenance()
    stays.close()
    assert len(databases(local)) == 2


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
