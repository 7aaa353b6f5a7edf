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

from holdfast.conformance.base import Contract, commit, key, read
from holdfast.conformance.workload import expected_state
from holdfast.contract.capabilities import Capability
from holdfast.errors import MissingVersion

if TYPE_CHECKING:
    from holdfast.conformance.backend import Backend
    from holdfast.contract.provider import StateStoreProvider

CHILD_TIMEOUT_SECONDS = 120
RANDOM_KILLS = 8


class CrashContract(Contract):
    """State that was reopened after a crash is that before or after, never between."""

    @pytest.fixture
    def durable(self, backend: Backend) -> None:
        """Skip the test where nothing is promised to survive."""
        if Capability.VOLATILE in backend.provider_class.capabilities:
            pytest.skip("the provider declares VOLATILE: it has nothing to find again after a crash")

    @pytest.mark.usefixtures("durable")
    def test_crash_at_every_fault_point(self, backend: Backend) -> None:
        names = backend.provider_class.fault_points
        if not names:
            pytest.skip("the provider declares no fault points")
        acknowledged = 0
        for name in names:
            with _Child(backend, acknowledged, die_at=name) as child:
                acknowledged = max(acknowledged, child.wait_until_dead())
            assert child.process.returncode == -signal.SIGKILL, (
                f"fault point {name} was declared but a commit does not pass it; the child ended with"
                f" {child.process.returncode}:\n{child.errors()}"
            )
            acknowledged = _check_reopened(backend, acknowledged, f"after a crash at {name}")

    @pytest.mark.usefixtures("durable")
    def test_crash_at_random_moments(self, backend: Backend) -> None:
        moments = random.Random(20)  # noqa: S311 - a fixed seed makes the moments comparable between runs
        acknowledged = 0
        for _ in range(RANDOM_KILLS):
            with _Child(backend, acknowledged) as child:
                acknowledged = max(acknowledged, child.wait_for_commit())
                time.sleep(moments.random() * 0.05)
                child.kill()
                acknowledged = max(acknowledged, child.wait_until_dead())
            assert child.process.returncode == -signal.SIGKILL, child.errors()
            acknowledged = _check_reopened(backend, acknowledged, "after a crash at a random moment")


def _check_reopened(backend: Backend, acknowledged: int, when: str) -> int:
    """Open the store as a new run would; returns the newest version that is there."""
    provider = backend.open()
    try:
        found = read(provider, acknowledged)
        assert found == expected_state(acknowledged), f"{when} version {acknowledged}, which was committed, is damaged"
        newest = acknowledged
        if _is_there(provider, newest + 1):
            newest += 1
            assert read(provider, newest) == expected_state(newest), (
                f"{when} version {newest}, whose commit was cut off, is there but not whole"
            )
        assert not _is_there(provider, newest + 1), f"{when} version {newest + 1} is there, which nobody began"
        # The interrupted batch runs again: it must be able to replace whatever was left.
        commit(provider, acknowledged, {key("again"): b"\0" * 24})
        assert read(provider, acknowledged + 1) == expected_state(acknowledged) | {key("again"): b"\0" * 24}
    finally:
        provider.close()
    return acknowledged


def _is_there(provider: StateStoreProvider, version: int) -> bool:
    try:
        provider.get_read_store(version).abort()
    except MissingVersion:
        return False
    return True


class _Child:
    """A process that commits version after version and reports each."""

    def __init__(self, backend: Backend, version: int, die_at: str = "") -> None:
        command = [sys.executable, "-m", "holdfast.conformance.child", backend.to_json(), str(version), die_at]
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

    def wait_for_commit(self) -> int:
        """Wait for the next acknowledged version."""
        version = self._reports.get(timeout=CHILD_TIMEOUT_SECONDS)
        assert version is not None, f"the child ended before its first commit:\n{self.errors()}"
        return version

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
