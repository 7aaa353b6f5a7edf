"""Races: several attempts, readers and maintenance at once, in threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import TYPE_CHECKING

import pytest

from holdfast.conformance.base import Contract, commit, key, read, value
from holdfast.errors import Fenced, MissingVersion, Unavailable

if TYPE_CHECKING:
    from concurrent.futures import Future

    from holdfast.conformance.base import OpenProvider
    from holdfast.contract.provider import StateStoreProvider

ROUNDS = 15
KEYS = [key(f"k{i}") for i in range(200)]


class RaceContract(Contract):
    """What holds when several threads work on one store."""

    @pytest.mark.parametrize("same_provider", [True, False])
    def test_two_writers_of_one_version(
        self, provider: StateStoreProvider, open_provider: OpenProvider, same_provider: bool
    ) -> None:
        attempts = [provider, provider if same_provider else open_provider()]
        barrier = Barrier(len(attempts))

        def attempt(number: int, version: int) -> bool:
            with attempts[number].get_store(version) as store:
                # Each attempt writes a mark of its own to every key, so a mixture shows.
                store.put_many(KEYS, [value(version, f"attempt {number}")] * len(KEYS))
                store.put(key(f"only {number}"), value(version))
                store.remove(key(f"only {1 - number}"))
                barrier.wait()
                try:
                    store.commit()
                except (Fenced, Unavailable):
                    return False
                return True

        with ThreadPoolExecutor(len(attempts)) as pool:
            for version in range(ROUNDS):
                succeeded = list(pool.map(attempt, range(len(attempts)), [version] * len(attempts)))
                assert any(succeeded), "each of two attempts failed because of the other"
                whole = [
                    {k: value(version, f"attempt {number}") for k in KEYS} | {key(f"only {number}"): value(version)}
                    for number in range(len(attempts))
                ]
                for other in (*attempts, open_provider()):
                    found = read(other, version + 1)
                    assert found in whole, f"version {version + 1} is a mixture of two attempts"
                    assert succeeded[whole.index(found)], "the version is that of an attempt whose commit failed"

    def test_readers_beside_a_writer_and_maintenance(
        self, provider: StateStoreProvider, open_provider: OpenProvider
    ) -> None:
        commit(provider, 0, {k: value(1) for k in KEYS})
        newest = [1]
        done = Event()

        def look(reader: StateStoreProvider) -> int:
            looks = 0
            while not done.is_set() or looks == 0:
                newest_then = newest[0]
                # The version that is being written either is not there yet or is whole.
                for version in (newest_then, newest_then + 1):
                    try:
                        found = read(reader, version)
                    except MissingVersion:
                        came_too_late = newest[0] > newest_then
                        assert version > newest_then or came_too_late, f"version {version} was there and does not open"
                        continue
                    assert found == {k: value(version) for k in KEYS}, "a reader saw a version half written"
                    looks += 1
            return looks

        def maintain() -> None:
            while not done.wait(0.001):
                provider.do_maintenance()

        with ThreadPoolExecutor(3) as pool:
            watchers: list[Future[int] | Future[None]] = [
                pool.submit(look, provider),
                pool.submit(look, open_provider()),
                pool.submit(maintain),
            ]
            try:
                for version in range(1, ROUNDS):
                    with provider.get_store(version) as store:
                        store.put_many(KEYS, [value(version + 1)] * len(KEYS))
                        store.commit()
                    newest[0] = version + 1
                    for watcher in watchers:
                        if watcher.done():
                            watcher.result()
            finally:
                done.set()
            for watcher in watchers:
                watcher.result()
