"""The folders that tests write to, and what they do to them."""

import os
import time
import traceback
import warnings
from dataclasses import dataclass, field

import pytest
from servers import SEAWEEDFS, SERVERS, Proxy, Server

from holdfast.checkpoint.storage import Folder, Patience
from holdfast.contract.faults import watch_fault_points


@dataclass
class Place:
    """An empty folder of a test."""

    kind: str
    url: str
    options: dict = field(default_factory=dict)
    server: Server | None = None

    def open(self, **more):
        return Folder.open(self.url, self.options, **more)


@pytest.fixture(params=["local", "memory", "s3", "gcs", SEAWEEDFS])
def place(request, tmp_path):
    return make_place(request.param, request, tmp_path)


@pytest.fixture(params=["s3", "gcs", SEAWEEDFS])
def remote(request, tmp_path):
    return make_place(request.param, request, tmp_path)


def make_place(kind, request, tmp_path):
    if kind == "local":
        return Place(kind, str(tmp_path / "checkpoint"))
    if kind == "memory":
        return Place(kind, f"memory:/{tmp_path}")
    server = request.getfixturevalue(SERVERS[kind])
    return Place(kind, server.url(tmp_path.parent.name, tmp_path.name), server.options, server)


@pytest.fixture
def folder(place):
    return place.open()


@pytest.fixture
def proxied(remote):
    """The folder behind a proxy, the proxy, and the pauses that were made."""
    proxy = Proxy(remote.server.endpoint)
    pauses = []
    behind = Place(remote.kind, remote.url, remote.server.through(proxy.endpoint).options)
    try:
        yield behind.open(patience=Patience(sleep=pauses.append)), proxy, pauses
    finally:
        proxy.close()


def in_child(function):
    """Run a function in a forked child and return its exit status; 99 if it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: fork with threads, the point of the test
        child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException:  # noqa: BLE001 -- nothing may escape from the child
            traceback.print_exc()
        os._exit(99)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def fault_points_of(action):
    passed = []
    with watch_fault_points(passed.append):
        action()
    return passed


class Injected(Exception):
    """Stands for an error at a fault point."""


def no_sleep(seconds):
    """Do not sleep."""


def no_objection():
    """Agree to whatever is about to be published."""
