"""Which files make a version.

A folder of the log has ``<version>.delta`` files, one per commit, and now and then a
``<version>.snapshot`` with everything. Version V is the newest snapshot not above V and every delta
after it up to V, or every delta from 1. Nothing here reads a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import MissingVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A version has one spelling and 64 bits; anything else is not the log's.
_NAME = re.compile(r"(0|[1-9]\d{0,18})\.(delta|snapshot)(\.aside\d*)?", re.ASCII)
_TEMPORARY = re.compile(r"\.(0|[1-9]\d{0,18})\.(?:delta|snapshot)\.[0-9a-f]+\.tmp", re.ASCII)


def delta_name(version: int) -> str:
    """The file of the changes that made ``version``."""
    return f"{version}.delta"


def snapshot_name(version: int) -> str:
    """The file with everything in ``version``."""
    return f"{version}.snapshot"


@dataclass(frozen=True)
class Route:
    """One way to load a version: a snapshot or nothing, then deltas in order."""

    snapshot: int | None
    deltas: range

    @property
    def names(self) -> list[str]:
        """The files in the order in which they apply."""
        first = [] if self.snapshot is None else [snapshot_name(self.snapshot)]
        return [*first, *map(delta_name, self.deltas)]


@dataclass(frozen=True)
class Chain:
    """The files of one store's log that are known to be there. Threads share it, so it never changes."""

    deltas: frozenset[int] = frozenset()
    snapshots: frozenset[int] = frozenset()
    leftovers: frozenset[str] = frozenset()
    """Names of files that nobody reads: set aside, or left unfinished by a crash."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Chain:
        """Sort out a listing; what is not the log's is ignored, as Spark does."""
        deltas: set[int] = set()
        snapshots: set[int] = set()
        leftovers: set[str] = set()
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None:
                if _TEMPORARY.fullmatch(name):
                    leftovers.add(name)
            elif match[3]:
                leftovers.add(name)
            else:
                (deltas if match[2] == "delta" else snapshots).add(int(match[1]))
        return cls(frozenset(deltas), frozenset(snapshots), frozenset(leftovers))

    def including(self, names: Iterable[str]) -> Chain:
        """The chain with these files too."""
        more = Chain.of(names)
        return Chain(self.deltas | more.deltas, self.snapshots | more.snapshots, self.leftovers | more.leftovers)

    def without(self, names: Iterable[str]) -> Chain:
        """The chain without these files."""
        gone = Chain.of(names)
        return Chain(self.deltas - gone.deltas, self.snapshots - gone.snapshots, self.leftovers - gone.leftovers)

    @property
    def set_aside(self) -> list[str]:
        """Names of the files that belong to a future that did not happen."""
        return sorted(name for name in self.leftovers if ".aside" in name)

    @property
    def newest(self) -> int:
        """The newest version that there is a file of; 0 if there is none."""
        return max(self.deltas | self.snapshots, default=0)

    def routes(self, version: int, where: str) -> Iterator[Route]:
        """The ways to load ``version``, the shortest first; ``MissingVersion`` names the file if there is none.

        There is more than one only to survive a damaged snapshot.
        """
        found = False
        starts: list[int | None] = [*sorted((s for s in self.snapshots if s <= version), reverse=True), None]
        for snapshot in starts:
            deltas = range((snapshot or 0) + 1, version + 1)
            if all(delta in self.deltas for delta in deltas):
                found = True
                yield Route(snapshot, deltas)
        if not found:
            raise MissingVersion(self._hole(version, where))

    def _hole(self, version: int, where: str) -> str:
        snapshot = max((s for s in self.snapshots if s <= version), default=0)
        missing = next(delta for delta in range(snapshot + 1, version + 1) if delta not in self.deltas)
        start = f"snapshot {snapshot}" if snapshot else "version 0"
        there = f"the newest version there is {self.newest}" if self.newest else "there is no version yet"
        return f"version {version} of {where} cannot be loaded from {start}: {delta_name(missing)} is missing; {there}"

    def above(self, base: int) -> list[str]:
        """The files that must not be seen any more once ``base + 1`` is made from ``base`` again."""
        deltas = sorted(version for version in self.deltas if version > base + 1)
        snapshots = sorted(version for version in self.snapshots if version > base)
        # Highest first: a crash on the way leaves a chain that only lacks its end.
        return [*map(snapshot_name, reversed(snapshots)), *map(delta_name, reversed(deltas))]

    def obsolete(self, oldest: int) -> list[str]:
        """The files that no version from ``oldest`` on needs."""
        start = max((s for s in self.snapshots if s <= oldest), default=None)
        if start is None:
            return []
        # The delta of the snapshot's own version stays: its hash is the version's identity.
        deltas = [delta_name(version) for version in sorted(self.deltas) if version < start]
        snapshots = [snapshot_name(version) for version in sorted(self.snapshots) if version < start]
        leftovers = [name for name in sorted(self.leftovers) if int(name.strip(".").partition(".")[0]) < start]
        return [*snapshots, *deltas, *leftovers]
