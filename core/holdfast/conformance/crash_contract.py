"""Crashes: the provider works in a child process that is killed with SIGKILL."""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import sys
import time
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from holdfast.conformance.base import Contract, commit, key, read, value
from holdfast.conformance.workload import changes, expected_state
from holdfast.contract.capabilities import Capability
from holdfast.errors import MissingVersion

if TYPE_CHECKING:
    from holdfast.conformance.backend import Backend
    from holdfast.contract.provider import StateStoreProvider

CHILD_TIMEOUT_SECONDS = 120
RANDOM_KILLS = 8
LEFT_BEHIND = {key("again"): value(-1)}
"""What the batch that is run again after a crash adds; the next child replaces its version."""


class CrashContract(Contract):
    """State that was reopened after a crash is that before or after, never between."""

    @pytest.fixture
    def durable(self, backend: Backend) -> None:
        """Skip the test where nothing is promised to survive."""
        if Capability.VOLATILE in backend.provider_class.capabilities:
            pytest.skip("the provider declares VOLATILE: it has nothing to find again after a crash")
        if not backend.outlives_process:
            pytest.skip("the checkpoint is lost with the process: there is nothing to find again after a crash")

    @pytest.mark.usefixtures("durable")
    @pytest.mark.parametrize("moment", ["first commit", "later commit", "commit that replaces a version"])
    def test_crash_at_every_fault_point(self, backend: Backend, moment: str) -> None:
        names = backend.provider_class.fault_points
        if not names:
            pytest.skip("the provider declares no fault points")
        for partition, name in enumerate(names):
            store = _Store(backend, partition)
            if moment == "commit that replaces a version":
                store.prepare(2)
            with store.child(die_at=name, die_on_pass=3 if moment == "later commit" else 1) as child:
                store.acknowledge(child.wait_until_dead())
            assert child.process.returncode == -signal.SIGKILL, (
                f"fault point {name} was declared but a commit does not pass it; the child ended with"
                f" {child.process.returncode}:\n{child.errors()}"
            )
            store.check(f"after a crash at {name} in a {moment}")

    @pytest.mark.usefixtures("durable")
    def test_crash_at_random_moments(self, backend: Backend) -> None:
        moments = random.Random(20)  # noqa: S311 - a fixed seed makes the moments comparable between runs
        store = _Store(backend, partition=0)
        for _ in range(RANDOM_KILLS):
            with store.child() as child:
                child.wait_until_ready()
                time.sleep(moments.random() * 0.05)
                child.kill()
                store.acknowledge(child.wait_until_dead())
            assert child.process.returncode == -signal.SIGKILL, child.errors()
            store.check("after a crash at a random moment")


class _Store:
    """One store that children work on, and the newest version of which they said that it is committed."""

    def __init__(self, backend: Backend, partition: int) -> None:
        self._backend = backend
        self._partition = partition
        self.acknowledged = 0

    def child(self, die_at: str = "", die_on_pass: int = 0) -> _Child:
        """Start a child where the last one left off."""
        return _Child(self._backend, self._partition, self.acknowledged, die_at, die_on_pass)

    def acknowledge(self, version: int) -> None:
        """A child said that ``version`` is committed."""
        self.acknowledged = max(self.acknowledged, version)

    def prepare(self, versions: int) -> None:
        """Have some versions to begin with, and one more that the next child will replace."""
        provider = self._backend.open(partition_id=self._partition)
        for version in range(versions):
            puts, removes = changes(version + 1)
            self.acknowledge(commit(provider, version, puts, tuple(removes)))
        provider.close()
        self.check("after preparation")

    def check(self, when: str) -> None:
        """Open the store as a new run would: it is as before the crash or as after, never between."""
        provider = self._backend.open(partition_id=self._partition)
        try:
            newest = self.acknowledged
            found = read(provider, newest)
            assert found == expected_state(newest), f"{when} version {newest}, which was committed, is damaged"
            if _is_there(provider, newest + 1):
                newest += 1
                found = read(provider, newest)
                replaced = expected_state(self.acknowledged) | LEFT_BEHIND
                assert found in (expected_state(newest), replaced), (
                    f"{when} version {newest}, whose commit was cut off, is there but not whole"
                )
            assert not _is_there(provider, newest + 1), f"{when} version {newest + 1} is there, which nobody began"
            # The interrupted batch runs again: it must be able to replace whatever was left.
            commit(provider, self.acknowledged, LEFT_BEHIND)
            assert read(provider, self.acknowledged + 1) == expected_state(self.acknowledged) | LEFT_BEHIND
        finally:
            provider.close()


def _is_there(provider: StateStoreProvider, version: int) -> bool:
    try:
        provider.get_read_store(version).abort()
    except MissingVersion:
        return False
    return True


class _Child:
    """A process that commits version after version and reports each."""

    def __init__(self, backend: Backend, partition: int, version: int, die_at: str, die_on_pass: int) -> None:
        arguments = [backend.to_json(), str(partition), str(version), die_at, str(die_on_pass)]
        command = [sys.executable, "-m", "holdfast.conformance.child", *arguments]
        # Providers under test may only be importable here.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self._reports: queue.Queue[int | None] = queue.Queue()
        self._errors: list[str] = []
        self._threads = [Thread(target=self._read_reports, daemon=True), Thread(target=self._read_errors, daemon=True)]
        for thread in self._threads:
            thread.start()

    def _read_reports(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._reports.put(int(line))
        self._reports.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    def wait_until_ready(self) -> None:
        """Wait until its provider is open."""
        ready = self._reports.get(timeout=CHILD_TIMEOUT_SECONDS)
        assert ready is not None, f"the child ended by itself:\n{self.errors()}"

    def wait_until_dead(self) -> int:
        """Wait for the end; returns the last acknowledged version, or 0."""
        last = 0
        while (version := self._reports.get(timeout=CHILD_TIMEOUT_SECONDS)) is not None:
            last = version
        self.process.wait(CHILD_TIMEOUT_SECONDS)
        return last

    def kill(self) -> None:
        """End it without warning."""
        self.process.kill()

    def errors(self) -> str:
        """What it wrote to its standard error."""
        for thread in self._threads:
            thread.join(5)
        return "".join(self._errors)

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for thread, stream in zip(self._threads, (self.process.stdout, self.process.stderr), strict=True):
            thread.join()
            if stream is not None:
                stream.close()
