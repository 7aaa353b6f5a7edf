"""When the local environment of a store is used again, brought up to date, taken back or thrown away."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stores import commit, custom, key, lmdb_backend, many, read, value, versions

from holdfast.conformance import Backend
from holdfast.contract.faults import watch_fault_points
from holdfast.errors import CommitFailed

CHILD = """
import os, signal, sys
from holdfast.conformance import Backend
from stores import versions
provider = Backend.from_json(sys.argv[1]).open()
versions(provider, 1, 5)
print("ready", flush=True)
{end}
"""


def run_child(backend, end):
    """Make five versions in another process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", CHILD.format(end=end), backend.to_json()]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def killed_child(backend):
    with run_child(backend, "os.kill(os.getpid(), signal.SIGKILL)") as child:
        assert child.stdout.read() == "ready\n"
    assert child.returncode == -signal.SIGKILL


def closed(backend, last=5):
    provider = backend.open()
    state = versions(provider, 1, last)
    provider.close()
    return state


def data_file(tmp_path):
    (found,) = (tmp_path / "local").glob("*/0/data.mdb")
    return found


def opened(backend, version):
    """What a new provider shows of a version, and what it had to do for it."""
    provider = backend.open()
    try:
        with provider.get_store(version) as store:
            found = dict(store.iterator())
        return found, custom(provider)
    finally:
        provider.close()


def test_warm_restart(tmp_path):
    backend = lmdb_backend(tmp_path)
    state = closed(backend)
    found, metrics = opened(backend, 5)
    assert found == state
    assert metrics["lmdbRebuilds"] == metrics["numDeltasRead"] == 0


def test_caught_up_when_behind(tmp_path):
    backend = lmdb_backend(tmp_path)
    closed(backend, 3)
    files = Backend("files", backend.checkpoint_root)
    other = files.open()
    state = versions(other, 4, 6)
    other.close()
    found, metrics = opened(backend, 6)
    assert found == state
    assert (metrics["lmdbRebuilds"], metrics["numCatchUps"], metrics["numDeltasRead"]) == (0, 1, 3)


@pytest.mark.parametrize(("ahead", "rebuilds"), [(1, 0), (2, 0), (3, 1)])
def test_taken_back_when_ahead(tmp_path, ahead, rebuilds):
    backend = lmdb_backend(tmp_path)
    closed(backend, 6)
    provider = backend.open()
    base = 6 - ahead
    commit(provider, base, {key("again"): value(0)})
    expected = {key(f"k{v}"): value(v) for v in range(1, base + 1)} | {key("newest"): value(base)}
    assert read(provider, base + 1) == expected | {key("again"): value(0)}
    assert custom(provider)["lmdbRebuilds"] == rebuilds
    provider.close()
    assert opened(backend, base + 1)[0] == expected | {key("again"): value(0)}


def test_of_a_checkpoint_that_was_made_anew(tmp_path):
    backend = lmdb_backend(tmp_path)
    closed(backend)
    shutil.rmtree(backend.checkpoint_root)
    provider = Backend("files", backend.checkpoint_root).open()
    for version in range(5):
        commit(provider, version, {key("other"): value(version)})
    provider.close()
    found, metrics = opened(backend, 5)
    assert found == {key("other"): value(4)}
    assert metrics["lmdbRebuilds"] == 1


def test_killed_and_healthy(tmp_path):
    backend = lmdb_backend(tmp_path, overlaySize="0")
    killed_child(backend)
    found, metrics = opened(backend, 5)
    assert found[key("newest")] == value(5)
    assert metrics["lmdbRebuilds"] == 0


MANY = 10_000
"""Keys that LMDB is not given in one transaction."""

IN_PARTS = """
import os, signal, sys
from holdfast.conformance import Backend
from holdfast.contract.faults import watch_fault_points
from stores import commit, many
provider = Backend.from_json(sys.argv[1]).open()
commit(provider, commit(provider, 0, many(0, 10_000)), many(1, 10_000), list(many(0, 10_000))[::2])
passed = []
def die(name):
    passed.append(name)
    if passed.count("lmdb.before_commit") == 3:
        os.kill(os.getpid(), signal.SIGKILL)
with watch_fault_points(die):
    commit(provider, 2, many(2, 20_000), list(many(1, 10_000))[::3])
"""


def after(version):
    """What the versions of the child above contain."""
    state = many(0, MANY)
    steps = [(many(1, MANY), list(many(0, MANY))[::2]), (many(2, 2 * MANY), list(many(1, MANY))[::3])]
    for puts, removes in steps[: version - 1]:
        state.update(puts)
        for removed in removes:
            state.pop(removed, None)
    return state


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("indexed", [False, True])
def test_killed_between_the_parts_of_a_large_commit(tmp_path, version, indexed):
    backend = lmdb_backend(tmp_path, overlaySize="0")
    schema = {} if indexed else {"key_schema": "name string"}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    script = IN_PARTS.replace(".open()", f".open(**{schema})")
    command = [sys.executable, "-c", script, backend.to_json()]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    provider = backend.open(**schema)
    found, metrics = read(provider, version), custom(provider)
    provider.close()
    assert found == after(version)
    assert (metrics["lmdbRebuilds"], metrics["numDeltasRead"]) == (0, int(version == 3))


def test_an_error_between_the_parts_of_a_large_commit(tmp_path):
    provider = lmdb_backend(tmp_path, overlaySize="0").open()
    commit(provider, 0, many(0, MANY))
    passed = []

    def fail(name):
        passed.append(name)
        if passed.count("lmdb.before_commit") == 3:
            raise OSError("injected")

    with provider.get_store(1) as store:
        store.put_many(list(many(1, MANY)), list(many(1, MANY).values()))
        with watch_fault_points(fail), pytest.raises(CommitFailed, match="injected"):
            store.commit()
        assert read(provider, 1) == many(0, MANY)
        store.commit()
    assert read(provider, 2) == many(0, MANY) | many(1, MANY)
    assert custom(provider)["lmdbRebuilds"] == 0
    provider.close()


def zero_a_page(tmp_path):
    data = data_file(tmp_path)
    with data.open("r+b") as file:
        for page in range(2, data.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(bytes(4096))


def forget_the_boot(tmp_path):
    marker = data_file(tmp_path).with_name("state.json")
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "boot": "another"}))


def copy_the_file(tmp_path):
    data = data_file(tmp_path)
    copy = Path(shutil.copy2(data, data.with_name("copy")))
    copy.replace(data)


def remove_the_marker(tmp_path):
    data_file(tmp_path).with_name("state.json").unlink()


@pytest.mark.parametrize("spoil", [zero_a_page, forget_the_boot, copy_the_file, remove_the_marker])
@pytest.mark.parametrize("killed", [False, True])
def test_not_to_be_trusted(tmp_path, spoil, killed):
    backend = lmdb_backend(tmp_path, overlaySize="0")
    if killed:
        killed_child(backend)
    else:
        closed(backend)
    spoil(tmp_path)
    # This process would not survive opening a damaged file.
    found, metrics = opened(backend, 5)
    assert found[key("newest")] == value(5)
    assert len(found) == 6
    assert metrics["lmdbRebuilds"] == 1


def test_two_processes_have_one_each(tmp_path):
    backend = lmdb_backend(tmp_path)
    with run_child(backend, "sys.stdin.read()") as child:
        assert child.stdout.readline() == "ready\n"
        found, metrics = opened(backend, 5)
        assert found[key("newest")] == value(5)
        assert metrics["lmdbRebuilds"] == 1
        assert len(list((tmp_path / "local").glob("*/*/data.mdb"))) == 2
        child.stdin.close()
        assert child.wait(60) == 0


def test_a_new_run_takes_over(tmp_path):
    backend = lmdb_backend(tmp_path)
    old, new = backend.open(), None
    try:
        state = versions(old, 1, 3)
        new = backend.open()
        assert read(new, 3) == state
        assert custom(new)["lmdbRebuilds"] == 0
        old.close()
        old = None
        commit(new, 3, {key("more"): value(1)})
        assert read(new, 4) == state | {key("more"): value(1)}
    finally:
        for provider in (old, new):
            if provider is not None:
                provider.close()


def test_what_unloaded_stores_left_is_removed(tmp_path):
    backend = lmdb_backend(tmp_path, keepUnused="0")
    gone, stays = backend.open(partition_id=1), backend.open(partition_id=2)
    commit(gone, 0, {key("a"): value(1)})
    commit(stays, 0, {key("a"): value(2)})
    stays.do_maintenance()
    assert len(list((tmp_path / "local").glob("*/0"))) == 2, "an environment in use was removed"
    gone.close()
    stays.do_maintenance()
    assert len(list((tmp_path / "local").glob("*/0"))) == 1
    assert read(stays, 1) == {key("a"): value(2)}
    stays.close()
    again = backend.open(partition_id=1)
    assert read(again, 1) == {key("a"): value(1)}
    again.close()


def test_environments_are_kept_by_default(tmp_path):
    backend = lmdb_backend(tmp_path)
    closed(backend)
    other = backend.open(partition_id=7)
    other.do_maintenance()
    other.close()
    assert opened(backend, 5)[1]["lmdbRebuilds"] == 0
