"""The smallest correct provider. Read it first when you write your own."""

from __future__ import annotations

import sys
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from holdfast import Capability, StateView, VersionedProvider
from holdfast.errors import InvalidRequest, MissingVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast import Changes, Pair, StateStoreId


class _Version(StateView):
    """A version is a dict that nobody changes any more."""

    def __init__(self, pairs: dict[bytes, bytes]) -> None:
        self.pairs = pairs
        self.size = sum(map(len, pairs)) + sum(map(len, pairs.values()))

    def get(self, key: bytes) -> bytes | None:
        return self.pairs.get(key)

    def entries(self) -> Iterator[Pair]:
        return iter(self.pairs.items())

    def num_keys(self) -> int:
        return len(self.pairs)


class _Store:
    """What the process keeps of one store: its versions, and a lock for whoever changes which there are."""

    def __init__(self) -> None:
        self.versions = {0: _Version({})}
        self.lock = Lock()


class MemoryStateStoreProvider(VersionedProvider):
    """Keeps versions in memory; they are lost with the process.

    The versions belong to the process, not to the provider: a query that is stopped and started
    again in one process finds its state. For tests, for trying things out, and as the example of
    the contract.
    """

    capabilities: ClassVar = frozenset(
        {Capability.VOLATILE, Capability.RANGE_SCAN, Capability.PREFIX_SCAN, Capability.LATE_START}
    )

    _stores: ClassVar[dict[StateStoreId, _Store]] = {}

    def open(self) -> None:
        # setdefault is one atomic step, so two providers of one store share one _Store.
        self._store = self._stores.setdefault(self.store_id, _Store())

    def open_view(self, version: int) -> _Version:
        with self._store.lock:
            view = self._store.versions.get(version)
            there = ", ".join(map(str, sorted(self._store.versions)))
        if view is None:
            raise MissingVersion(
                f"version {version} of {self.location} is not in memory (there are: {there}). The memory provider loses"
                " its state with its process and keeps only the newest versions; for state that survives, set"
                " providerClass to a durable provider (`holdfast providers`) and start from a new checkpoint"
            )
        return view

    def publish(self, base: int, view: StateView, changes: Changes, ask: Callable[[], None]) -> int:
        pairs = dict(view.entries())
        for key, value in changes.items():
            if value is None:
                pairs.pop(key, None)
            else:
                pairs[key] = value
        published = _Version(pairs)
        new = base + 1
        # A batch that runs again opens the version before the newest, so two are the least to keep.
        oldest = new - max(2, self.conf.max_versions_to_retain_in_memory) + 1
        ask()
        with self._store.lock:
            kept = {v: old for v, old in self._store.versions.items() if v == 0 or oldest <= v <= base}
            self._store.versions = {**kept, new: published}
        return len(pairs)

    def start_at(self, version: int) -> None:
        with self._store.lock:
            there = self._store.versions
            if version in there and not there[version].pairs:
                return
            if len(there) > 1:
                raise InvalidRequest(
                    f"{self.location} has state already, up to version {max(there)}: it cannot begin empty at version"
                    f" {version}; give the operator another name"
                )
            self._store.versions = {**there, version: _Version({})}

    def memory_used_bytes(self) -> int:
        with self._store.lock:
            versions = list(self._store.versions.values())
        # Versions share most of their rows, so the rows of the newest stand for those of all.
        return sum(sys.getsizeof(version.pairs) for version in versions) + versions[-1].size
