"""What is particular to this backend."""

import subprocess
import sys

import pytest

import holdfast
from holdfast.conformance import Backend
from holdfast.errors import CommitFailed, CorruptState, InvalidRequest, InvalidSetting, Unavailable
from holdfast_sqlite import SqliteStateStoreProvider
from holdfast_sqlite.provider import database_path

KEY, VALUE = b"k" * 16, b"v" * 16


@pytest.fixture
def backend(tmp_path):
    return Backend("sqlite", str(tmp_path / "state"))


def commit(provider, version, value=VALUE):
    with provider.get_store(version) as store:
        store.put(KEY, value)
        return store.commit()


@pytest.mark.parametrize(
    "name",
    ["sqlite", "holdfast_sqlite.SqliteStateStoreProvider", "holdfast_sqlite.provider.SqliteStateStoreProvider"],
)
def test_chosen_by_name(tmp_path, name):
    provider = Backend(name, str(tmp_path)).open()
    assert type(provider) is SqliteStateStoreProvider


def test_listed_by_the_command_line():
    shown = subprocess.run([sys.executable, "-m", "holdfast", "providers"], capture_output=True, text=True, check=True)
    assert "class         holdfast_sqlite.SqliteStateStoreProvider\n" in shown.stdout
    assert "installed by  holdfast-sqlite 0.1.0\n" in shown.stdout
    assert "spark.holdfast.sqlite.busyTimeout = 30s\n" in shown.stdout


@pytest.mark.parametrize(
    ("root", "folder"),
    [
        ("/data/state", "/data/state"),
        ("file:/data/state", "/data/state"),
        ("file:///data/my query/100%20/q#1?x", "/data/my query/100%20/q#1?x"),
        ("file://localhost/data", "/data"),
        ("relative/state", "relative/state"),
    ],
)
def test_paths(root, folder):
    left = holdfast.StateStoreId(root, 1, 2, "left")
    assert str(database_path(left, None)) == f"{folder}/1/2/left/state.sqlite"


def test_stores_never_share_a_path():
    names = ["default", "default.sqlite", "state.sqlite", "left"]
    stores = [holdfast.StateStoreId(root, 1, 2, name) for root in ("/a", "/b") for name in names]
    for directory in (None, "/db"):
        paths = [database_path(store, directory) for store in stores]
        assert len(set(paths)) == len(paths)
        assert not {parent for path in paths for parent in path.parents} & set(paths)


def test_remote_checkpoint_needs_a_directory(backend):
    with pytest.raises(InvalidSetting, match=r"set spark\.holdfast\.sqlite\.directory"):
        Backend("sqlite", "s3a://bucket/state").open()


def test_misspelt_setting():
    with pytest.raises(InvalidSetting, match=r"did you mean spark\.holdfast\.sqlite\.busyTimeout\?"):
        Backend("sqlite", "/nowhere", conf={"spark.holdfast.sqlite.busyTimout": "1s"}).open()


def test_damaged_database_is_named(backend, tmp_path):
    commit(backend.open(), 0)
    path = tmp_path / "state" / "0" / "0" / "default" / "state.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(CorruptState, match=r"state\.sqlite is damaged"):
        backend.open()


def test_database_of_a_later_format(backend, tmp_path):
    import sqlite3

    commit(backend.open(), 0)
    connection = sqlite3.connect(tmp_path / "state" / "0" / "0" / "default" / "state.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CorruptState, match="format 99"):
        backend.open()


def test_a_locked_database_is_unavailable_and_the_commit_can_be_retried(backend, tmp_path):
    import sqlite3

    impatient = Backend("sqlite", backend.checkpoint_root, conf={"spark.holdfast.sqlite.busyTimeout": "10ms"})
    provider = impatient.open()
    blocker = sqlite3.connect(tmp_path / "state" / "0" / "0" / "default" / "state.sqlite", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with provider.get_store(0) as store:
        store.put(KEY, VALUE)
        with pytest.raises(Unavailable, match="locked"):
            store.commit()
        blocker.close()
        assert store.commit() == 1


def test_maintenance_removes_what_no_version_needs(backend, tmp_path):
    import sqlite3

    frugal = Backend("sqlite", backend.checkpoint_root, conf={"spark.sql.streaming.minBatchesToRetain": "3"})
    provider = frugal.open()
    for version in range(30):
        commit(provider, version, VALUE + bytes([version]))
    with provider.get_store(30) as store:
        store.remove(KEY)
        store.commit()
    for version in range(31, 35):
        with provider.get_store(version) as store:
            store.commit()
    provider.do_maintenance()
    connection = sqlite3.connect(tmp_path / "state" / "0" / "0" / "default" / "state.sqlite")
    assert connection.execute("SELECT count(*) FROM entry").fetchone() == (0,)
    assert [n for (n,) in connection.execute("SELECT number FROM version ORDER BY number")] == [0, 33, 34, 35]
    connection.close()


def test_a_folder_that_cannot_be_one(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="cannot be used.*give the checkpoint"):
        Backend("sqlite", str(tmp_path / "file")).open()


def test_a_foreign_database(backend, tmp_path):
    import sqlite3

    commit(backend.open(), 0)
    connection = sqlite3.connect(tmp_path / "state" / "0" / "0" / "default" / "state.sqlite")
    connection.execute("DROP TABLE entry")
    connection.close()
    with pytest.raises(CorruptState, match="not a database of holdfast-sqlite"):
        commit(backend.open(), 1)


def test_a_database_of_somebody_else(backend, tmp_path):
    import sqlite3

    path = tmp_path / "state" / "0" / "0" / "default" / "state.sqlite"
    path.parent.mkdir(parents=True)
    sqlite3.connect(path).execute("CREATE TABLE mine (x)").connection.close()
    with pytest.raises(CorruptState, match="has format 0"):
        backend.open()


def test_an_error_of_the_guard_is_not_blamed_on_the_database(backend):
    class Silent(holdfast.CommitGuard):
        def before_publish(self, store):
            raise ConnectionError("driver gone")

    with backend.open(Silent()).get_store(0) as store, pytest.raises(CommitFailed) as failed:
        store.commit()
    assert "driver gone" in str(failed.value)
    assert "SQLite" not in str(failed.value)


def test_two_processes_create_and_commit_at_once(backend):
    code = (
        "import sys; from holdfast.conformance import Backend\n"
        "provider = Backend('sqlite', sys.argv[1]).open()\n"
        "for version in range(20):\n"
        "    with provider.get_store(version) as store:\n"
        "        store.put(b'k' * 16, sys.argv[2].encode() * 16)\n"
        "        try: store.commit()\n"
        "        except Exception as error: assert type(error).__name__ in {'Fenced', 'CommitFailed'}, error\n"
        "        else: continue\n"
        "    break\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, backend.checkpoint_root, name]) for name in "ab"]
    assert [child.wait(120) for child in children] == [0, 0]
    with backend.open().get_read_store(1) as store:
        assert dict(store.iterator()) in ({KEY: b"a" * 16}, {KEY: b"b" * 16})
