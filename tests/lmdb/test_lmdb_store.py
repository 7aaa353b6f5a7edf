"""What the lmdb backend stores: every key, in order, up to the limits, and the same files as the others."""

import os
import subprocess
import sys
from threading import Thread

import pytest
from stores import commit, custom, key, lmdb_backend, read, value, versions

from holdfast.conformance import Backend
from holdfast.conformance.base import codec
from holdfast.errors import InvalidSetting, Unavailable

LONG = [key("x" * length + end) for length in (470, 480, 500, 520, 3000) for end in ("", "a", "b", "\0")]


@pytest.fixture(params=["0", "16m"], ids=["at once", "overlay"])
def backend(request, tmp_path):
    return lmdb_backend(tmp_path, overlaySize=request.param)


@pytest.fixture
def provider(backend):
    opened = backend.open()
    yield opened
    opened.close()


def test_long_keys(backend, provider):
    pairs = {k: value(number) for number, k in enumerate(LONG)}
    assert len(pairs) == len(LONG)
    commit(provider, 0, pairs)
    assert read(provider, 1) == pairs
    with provider.get_store(1) as store:
        assert store.get_many(LONG) == list(pairs.values())
        assert list(store.prefix_scan(codec("name string").encode_one(["x" * 3000 + "a"]), 1)) == [
            (key("x" * 3000 + "a"), pairs[key("x" * 3000 + "a")])
        ]
        store.remove_many(LONG[::2])
        store.put(LONG[1], value(-1))
        store.commit()
    expected = dict(zip(LONG[1::2], map(pairs.get, LONG[1::2]), strict=True)) | {LONG[1]: value(-1)}
    assert read(provider, 2) == expected
    assert read(provider, 1) == pairs
    other = Backend("files", backend.checkpoint_root).open()
    assert read(other, 2) == expected


def test_a_key_of_no_bytes(tmp_path):
    backend = lmdb_backend(tmp_path, overlaySize="0")
    provider = backend.open(key_schema="")
    commit(provider, 0, {b"": value(1)})
    commit(provider, 1, {b"": value(2)})
    assert [read(provider, version) for version in (2, 1)] == [{b"": value(2)}, {b"": value(1)}]
    provider.close()


def test_backends_take_turns(tmp_path):
    lmdb = lmdb_backend(tmp_path)
    files = Backend("files", lmdb.checkpoint_root)
    for turn, backend in enumerate([files, lmdb, files, lmdb, files]):
        provider = backend.open()
        state = versions(provider, 4 * turn + 1, 4 * turn + 4)
        provider.do_maintenance()
        assert read(provider, 4 * turn + 4) == state
        provider.close()


def test_snapshots_while_committing(tmp_path):
    backend = lmdb_backend(tmp_path).with_conf(stateStore__minDeltasForSnapshot="1")
    provider = backend.open()
    pairs = {key(f"k{number}"): value(number) for number in range(20_000)}
    commit(provider, commit(provider, commit(provider, 0, pairs), {}), {})
    provider.get_store(3).abort()
    snapshots = Thread(target=provider.do_maintenance)
    snapshots.start()
    for version in range(3, 8):
        commit(provider, version, {k: value(-version) for k in pairs})
    snapshots.join()
    provider.close()
    names = os.listdir(tmp_path / "state/0/0")
    assert any(name.endswith(".snapshot") for name in names)
    other = Backend("files", backend.checkpoint_root).open()
    assert read(other, 3) == pairs
    assert read(other, 8) == dict.fromkeys(pairs, value(-7))


def test_scans_read_little_more_than_they_show(backend):
    provider = backend.open(key_schema="user string, at long", key_index_ordinal=1)
    at = codec("user string, at long").encode_one
    commit(provider, 0, {at((f"u{number % 100}", number)): value(number) for number in range(10_000)})
    commit(provider, 1, {at(("u5", 10_000 + number)): value(number) for number in range(100)})
    view = provider.open_view(2)
    try:
        found = list(view.range_entries(at((None, 9_990)), at((None, 10_009))))
        assert len(found) == 20
        assert len(list(view.prefix_entries(codec("user string").encode_one(["u5"]), 1))) == 200
    finally:
        view.close()
    with provider.get_store(2) as store:
        assert [codec("user string, at long").decode_one(k)[1] for k, _ in store.get_range(at((None, 9_998)), None)][
            :3
        ] == [9_998, 9_999, 10_000]
        store.remove_many([k for k, _ in found])
        store.commit()
    with provider.get_read_store(3) as store:
        assert list(store.get_range(at((None, 9_990)), at((None, 10_009)))) == []
    provider.close()


def test_the_map_grows_under_open_stores(tmp_path):
    provider = lmdb_backend(tmp_path, overlaySize="0").open()
    first = {key(f"k{number}"): value(number, "x" * 200) for number in range(1000)}
    commit(provider, 0, first)
    small = custom(provider)["lmdbMapUsedBytes"]
    with provider.get_read_store(1) as reader:
        iterator = reader.iterator()
        seen = [next(iterator)]
        commit(provider, 1, {key(f"m{number}"): value(number, "y" * 2000) for number in range(5000)})
        assert custom(provider)["lmdbMapUsedBytes"] > 4 * small
        seen += iterator
        assert dict(seen) == first
    provider.close()


def test_no_larger_than_allowed(tmp_path):
    backend = lmdb_backend(tmp_path, maxSize="1m", overlaySize="0")
    provider = backend.open()
    commit(provider, 0, {key("a"): value(1)})
    large = {key(f"k{number}"): value(number, "y" * 2000) for number in range(2000)}
    with provider.get_store(1) as store:
        store.put_many(list(large), list(large.values()))
        with pytest.raises(InvalidSetting, match="spark.holdfast.lmdb.maxSize"):
            store.commit()
        assert not store.has_committed
    assert read(provider, 1) == {key("a"): value(1)}
    commit(provider, 1, {key("b"): value(2)})
    assert read(provider, 2) == {key("a"): value(1), key("b"): value(2)}
    provider.close()
    provider = lmdb_backend(tmp_path, maxSize="64m").open()
    commit(provider, 2, large)
    assert read(provider, 3) == {key("a"): value(1), key("b"): value(2)} | large
    provider.close()


DISK_FULL = """
import resource, sys
from holdfast.conformance import Backend
from holdfast.errors import Unavailable
from stores import commit, key, read, value
count, size = map(int, sys.argv[2:])
provider = Backend.from_json(sys.argv[1]).open()
commit(provider, 0, {key("a"): value(1)})
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    commit(provider, 1, {key(f"k{number}"): value(number, "y" * size) for number in range(count)})
except Unavailable as error:
    print(error)
if count < 4096:
    # Otherwise there may be no room to undo the parts that were written.
    assert read(provider, 1) == {key("a"): value(1)}
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert read(provider, 1) == {key("a"): value(1)}
commit(provider, 1, {key("b"): value(2)})
assert read(provider, 2) == {key("a"): value(1), key("b"): value(2)}
provider.close()
"""


@pytest.mark.parametrize(("count", "size"), [(2000, 2000), (40_000, 8), (20_000, 100)])
def test_a_full_disk(tmp_path, count, size):
    """By a limit on the size of files, which LMDB's write meets like a full disk."""
    backend = lmdb_backend(tmp_path, overlaySize="0")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", DISK_FULL, backend.to_json(), str(count), str(size)]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "the disk is full or fails" in shown.stdout
    assert "in the checkpoint" in shown.stdout
    provider = backend.open()
    assert read(provider, 2) == {key("a"): value(1), key("b"): value(2)}
    provider.close()


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="spark.holdfast.lmdb.localDir"):
        lmdb_backend(tmp_path, localDir=str(tmp_path / "file")).open()


def test_metrics(tmp_path):
    provider = lmdb_backend(tmp_path).open()
    versions(provider, 1, 3)
    before = custom(provider)
    assert before["lmdbOverlayBytes"] > 0
    assert before["lmdbFlushes"] == 0
    provider.do_maintenance()
    maintained = custom(provider)
    assert maintained["lmdbFlushes"] == 1
    assert maintained["lmdbOverlayBytes"] == 0
    versions(provider, 4, 12)
    after = custom(provider)
    assert after["lmdbFlushes"] == 2
    assert after["lmdbPages"] * 4096 == after["lmdbMapUsedBytes"]
    with provider.get_read_store(12) as store:
        assert store.metrics.num_keys == 13
        assert store.metrics.memory_used_bytes == after["lmdbOverlayBytes"]
    provider.close()


def test_unavailable_is_what_a_lost_snapshot_says(tmp_path):
    provider = lmdb_backend(tmp_path).open()
    commit(provider, 0, {key("a"): value(1)})
    view = provider.open_view(1)
    provider.close()
    with pytest.raises(Unavailable, match="open the version again"):
        view.get(key("b"))
