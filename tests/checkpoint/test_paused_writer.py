"""An attempt that stops between its permission and its file, while others go on, changes nothing when it wakes up."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import CommitGuard
from holdfast.conformance import Backend
from holdfast.contract.faults import watch_fault_points
from holdfast.errors import Fenced


def row(text):
    return str(text).encode().ljust(8)


class Permissions(CommitGuard):
    """Of the attempts at one version, the one that asked last for the first time may write."""

    def __init__(self):
        self.owners = {}
        self.revoked = set()

    def before_publish(self, store):
        if store in self.revoked:
            raise Fenced(f"another attempt owns version {store.version + 1}")
        before = self.owners.setdefault(store.version, store)
        if before is not store:
            self.revoked.add(before)
            self.owners[store.version] = store


class Pause:
    """Stops one thread at a fault point until it is told to go on."""

    def __init__(self, point):
        self._point = point
        self._thread = None
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, name):
        if name == self._point and threading.get_ident() == self._thread:
            self._thread = None
            self.reached.set()
            assert self.go_on.wait(60)

    def run(self, action):
        self._thread = threading.get_ident()
        return action()


@pytest.fixture
def backend(place):
    return Backend("files", place.url, fs_options=place.options)


def commit(provider, version, text):
    with provider.get_store(version) as store:
        store.put(row("x"), row(text))
        return store.commit()


def read(provider, version):
    with provider.get_read_store(version) as store:
        return dict(store.iterator())


@pytest.mark.parametrize("same_provider", [True, False])
@pytest.mark.parametrize("point", ["commit.before_publish", "publish.allowed"])
def test_it_is_fenced(backend, point, same_provider):
    permissions = Permissions()
    provider = backend.open(permissions)
    other = provider if same_provider else backend.open(permissions)
    commit(provider, 0, "before")
    late = provider.get_store(1)
    late.put(row("x"), row("late"))
    pause = Pause(point)
    with watch_fault_points(pause), ThreadPoolExecutor(1) as pool:
        writing = pool.submit(pause.run, late.commit)
        try:
            assert pause.reached.wait(60)
            for version in (1, 2, 3):
                commit(other, version, f"v{version + 1}")
        finally:
            pause.go_on.set()
        with pytest.raises(Fenced, match="another attempt owns version 2"):
            writing.result(60)
    assert not late.has_committed
    for reader in (provider, other, backend.open()):
        for version in (2, 3, 4):
            assert read(reader, version) == {row("x"): row(f"v{version}")}
    commit(other, 4, "v5")
    assert read(backend.open(), 5) == {row("x"): row("v5")}


def test_one_that_is_still_allowed_overwrites_what_it_finds(backend):
    provider, other = backend.open(), backend.open()
    commit(provider, 0, "before")
    last = provider.get_store(1)
    last.put(row("x"), row("last"))
    pause = Pause("publish.allowed")
    with watch_fault_points(pause), ThreadPoolExecutor(1) as pool:
        writing = pool.submit(pause.run, last.commit)
        try:
            assert pause.reached.wait(60)
            commit(other, 1, "first")
        finally:
            pause.go_on.set()
        assert writing.result(60) == 2
    assert read(backend.open(), 2) == {row("x"): row("last")}
