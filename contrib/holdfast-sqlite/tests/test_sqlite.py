"""What is particular to this backend."""

import subprocess
import sys

import pytest

import holdfast
from holdfast.conformance import Backend
from holdfast.errors import CorruptState, InvalidSetting, Unavailable
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


def test_paths():
    store = holdfast.StateStoreId("file:///data/my%20query/state", 1, 2, "left")
    assert str(database_path(store, None)) == "/data/my query/state/1/2/left/left.sqlite"
    plain = holdfast.StateStoreId("/data/state", 1, 2)
    assert str(database_path(plain, None)) == "/data/state/1/2/default.sqlite"
    other = holdfast.StateStoreId("/data/other", 1, 2)
    assert database_path(plain, "/db") != database_path(other, "/db")


def test_remote_checkpoint_needs_a_directory(backend):
    with pytest.raises(InvalidSetting, match=r"set spark\.holdfast\.sqlite\.directory"):
        Backend("sqlite", "s3a://bucket/state").open()


def test_misspelt_setting():
    with pytest.raises(InvalidSetting, match=r"did you mean spark\.holdfast\.sqlite\.busyTimeout\?"):
        Backend("sqlite", "/nowhere", conf={"spark.holdfast.sqlite.busyTimout": "1s"}).open()


def test_damaged_database_is_named(backend, tmp_path):
    commit(backend.open(), 0)
    path = tmp_path / "state" / "0" / "0" / "default.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(CorruptState, match=r"default\.sqlite is damaged"):
        backend.open()


def test_database_of_a_later_format(backend, tmp_path):
    import sqlite3

    commit(backend.open(), 0)
    connection = sqlite3.connect(tmp_path / "state" / "0" / "0" / "default.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CorruptState, match="format 99"):
        backend.open()


def test_a_locked_database_is_unavailable_and_the_commit_can_be_retried(backend, tmp_path):
    import sqlite3

    impatient = Backend("sqlite", backend.checkpoint_root, conf={"spark.holdfast.sqlite.busyTimeout": "10ms"})
    provider = impatient.open()
    blocker = sqlite3.connect(tmp_path / "state" / "0" / "0" / "default.sqlite", isolation_level=None)
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
    connection = sqlite3.connect(tmp_path / "state" / "0" / "0" / "default.sqlite")
    assert connection.execute("SELECT count(*) FROM entry").fetchone() == (0,)
    assert [n for (n,) in connection.execute("SELECT number FROM version ORDER BY number")] == [0, 33, 34, 35]
    connection.close()
