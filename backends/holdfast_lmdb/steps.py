"""What leads from one version to later ones, and how it is cut into parts that are written one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast import Changes

_BYTES_IN_PART = 8 << 20
"""Bytes of values in one part, unless a single one is larger."""


@dataclass(frozen=True, slots=True)
class Step:
    """A version to be made, and what it changes."""

    version: int
    identity: str | None
    num_keys: int
    changes: Changes


def merged(steps: Sequence[Step]) -> Step:
    """One step with the effect of all."""
    if len(steps) == 1:
        return steps[0]
    changes: Changes = {}
    for step in steps:
        changes.update(step.changes)
    last = steps[-1]
    return Step(last.version, last.identity, last.num_keys, changes)


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the changes, in the order of their keys."""

    keys: list[bytes]
    values: list[bytes | None]
    size: int
    """Bytes of keys and values."""

    def halves(self) -> Iterator[Part]:
        """The same in smaller parts if this one is too large."""
        if self.size <= _BYTES_IN_PART or len(self.keys) == 1:
            yield self
            return
        middle = len(self.keys) // 2
        for half in (slice(0, middle), slice(middle, None)):
            yield from _part(self.keys[half], self.values[half]).halves()


def _part(keys: list[bytes], values: list[bytes | None]) -> Part:
    return Part(keys, values, sum(map(len, keys)) + sum(map(len, filter(None, values))))


def parts(changes: Mapping[bytes, bytes | None], most_keys: int) -> Iterator[Part]:
    """The changes, so many at a time: in the order of the keys, so that hardly a page belongs to two parts."""
    keys = sorted(changes)
    values = list(map(changes.__getitem__, keys))
    for start in range(0, len(keys), most_keys):
        some = slice(start, start + most_keys)
        yield from _part(keys[some], values[some]).halves()


def undo_records(steps: Sequence[Step], above: int, before: Changes) -> Iterator[tuple[int, Changes]]:
    """Of each step that makes a version above that one: the values that its keys had before it.

    ``before`` is what all of the changed keys had before the first step; it does not stay so.
    """
    for step in steps:
        if step.version > above:
            yield step.version, {key: before[key] for key in step.changes}
        if step is not steps[-1]:
            before.update(step.changes)
