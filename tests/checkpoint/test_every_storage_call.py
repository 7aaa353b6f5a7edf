"""An error or a crash at every single storage call of commit, snapshot and clean-up does no harm."""

from itertools import count

import pytest

from holdfast.checkpoint.filesystems import Filesystem
from holdfast.conformance import Backend
from holdfast.errors import HoldfastError, MissingVersion, Unavailable


def row(text):
    return str(text).encode().ljust(8)


class Crash(BaseException):
    """Ends the work at once: nothing but clean-up code runs after it."""


class FailingCall:
    """Fails at the n-th storage call: before it is made, or after it, when only its answer is lost."""

    def __init__(self, monkeypatch, error, when):
        self.error, self.when = error, when
        self.at, self.calls = None, 0
        original = Filesystem.call
        failing = self

        def call(self, patience, doing, action, **more):
            failing.calls += 1
            if failing.calls == failing.at and failing.when == "before":
                raise failing.error(doing)
            result = original(self, patience, doing, action, **more)
            if failing.calls == failing.at:
                raise failing.error(doing)
            return result

        monkeypatch.setattr(Filesystem, "call", call)

    def arm(self, at):
        self.at, self.calls = at, 0

    def disarm(self):
        reached, self.at = self.calls, None
        return reached


def history(version):
    """What a version must contain: each adds a key, changes one and removes one."""
    pairs = {}
    for made in range(1, version + 1):
        pairs[row(f"k{made}")] = row(made)
        pairs[row("same")] = row(made)
        pairs.pop(row(f"k{made - 2}"), None)
    return pairs


def commit(provider, base):
    with provider.get_store(base) as store:
        store.put(row(f"k{base + 1}"), row(base + 1))
        store.put(row("same"), row(base + 1))
        store.remove(row(f"k{base - 1}"))
        return store.commit()


def read(provider, version):
    with provider.get_read_store(version) as store:
        return dict(store.iterator())


@pytest.fixture
def backend(place):
    conf = {
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.minBatchesToRetain": "2",
    }
    return Backend("files", place.url, conf=conf, fs_options=place.options)


# Files above the version that is made again are there too, so that setting aside is among the calls.
VERSIONS, ABANDONED = 7, 2


def prepare(backend, partition):
    provider = backend.open(partition_id=partition)
    for base in range(VERSIONS + ABANDONED):
        commit(provider, base)
        if base == 3:
            provider.do_maintenance()
    provider.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [Crash, Unavailable])
def test_every_storage_call(backend, monkeypatch, error, when):
    failing = FailingCall(monkeypatch, error, when)
    for number in count(1):
        prepare(backend, partition=number)
        provider = backend.open(partition_id=number)
        store = provider.get_store(VERSIONS)
        store.put(row("new"), row("new"))
        committed = False
        failing.arm(number)
        try:
            store.commit()
            committed = True
            with provider.get_store(VERSIONS + 1):
                provider.do_maintenance()
        except (Crash, HoldfastError):
            pass
        reached = failing.disarm()
        check(backend, number, committed, reached)
        if reached < number:
            assert number > 8, "commit, snapshot and clean-up make more storage calls than that"
            return


def check(backend, partition, committed, call):
    where = f"after a failure at call {call}"
    provider = backend.open(partition_id=partition)
    before, after = history(VERSIONS), history(VERSIONS) | {row("new"): row("new")}
    assert read(provider, VERSIONS) == before, where
    allowed = [after] if committed else [after, history(VERSIONS + 1)]
    try:
        assert read(provider, VERSIONS + 1) in allowed, where
    except MissingVersion:
        assert not committed, where
    # The batch runs again, and the query goes on.
    with provider.get_store(VERSIONS) as store:
        store.put(row("again"), row("again"))
        store.commit()
    expected = before | {row("again"): row("again")}
    for other in (provider, backend.open(partition_id=partition)):
        assert read(other, VERSIONS + 1) == expected, where
        with pytest.raises(MissingVersion):
            other.get_read_store(VERSIONS + 2)
    provider.do_maintenance()
    assert read(backend.open(partition_id=partition), VERSIONS + 1) == expected, where
