"""One dict of the newest version, and what to undo to see the ones before it.

Opening the newest version costs nothing and a commit costs as much as it changes, however large the
state is. A version before the newest is the dict seen through the undo records since.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakSet

from holdfast import StateMap, StateView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast import Changes, Pair


class UndoMap(StateMap):
    """The newest version and a few before it."""

    def __init__(self, versions: int) -> None:
        # The newest and the one before: a batch that runs again opens that one, and maintenance snapshots it.
        self._keep = max(2, versions)
        self._lock = Lock()
        self._state = _State({}, 0)
        self._identities: dict[int, str | None] = {0: None}

    def identities(self) -> Mapping[int, str | None]:
        return dict(self._identities)

    def reset(self, version: int, identity: str | None, pairs: Iterable[Pair]) -> None:
        # Open views keep the state they were opened on.
        self._state = _State(dict(pairs), version)
        self._identities = {version: identity}

    def apply(self, version: int, identity: str | None, changes: Changes) -> int:
        with self._lock:
            state = self._state
            if state.newest != version - 1:
                state.go_back_to(version - 1)
            state.go_forward(changes)
            kept = {v: i for v, i in self._identities.items() if version - self._keep < v < version}
            self._identities = {**kept, version: identity}
            state.forget_before(min(self._identities))
            return len(state.pairs)

    def view(self, version: int) -> StateView:
        return _UndoView(self._state, version, self._lock)

    @property
    def size(self) -> int:
        """Bytes of the keys and values in the newest version."""
        return self._state.size

    def memory_used_bytes(self) -> int:
        return self._state.memory_used_bytes()


class _State:
    """The dict, its undo records, and who still looks at it."""

    def __init__(self, pairs: dict[bytes, bytes], newest: int) -> None:
        self.pairs = pairs
        self.newest = newest
        self.changed = 0
        """How often the dict was changed: a number of its own, because a version can be made again."""
        self.size = sum(map(len, pairs)) + sum(map(len, pairs.values()))
        """Bytes of keys and values."""
        self.undo: dict[int, Changes] = {}
        """By version: the values that its keys had before it."""
        self.undo_sizes: dict[int, int] = {}
        """By version: bytes of those values."""
        self.views: WeakSet[_UndoView] = WeakSet()

    def go_forward(self, changes: Changes) -> None:
        """Apply changes; they make the next version."""
        self.newest += 1
        self.undo[self.newest], self.undo_sizes[self.newest] = self._set(changes)

    def go_back_to(self, version: int) -> None:
        """Undo what came after ``version``; open views of later versions get a copy first."""
        for view in [view for view in self.views if view.version > version]:
            view.detach()
        while self.newest > version:
            self._set(self.undo.pop(self.newest))
            del self.undo_sizes[self.newest]
            self.newest -= 1

    def _set(self, changes: Changes) -> tuple[Changes, int]:
        """Set values, or remove keys; returns the values that there were before, and their bytes."""
        self.changed += 1
        pairs = self.pairs
        before: Changes = {}
        size = replaced = 0
        # Read and write in one pass: in a large dict every key is a cache miss, and the second touch is free.
        for key, value in changes.items():
            old = before[key] = pairs.get(key)
            if value is not None:
                pairs[key] = value
                size += len(value) + (len(key) if old is None else 0)
            elif old is not None:
                del pairs[key]
                size -= len(key)
            if old is not None:
                replaced += len(old)
        self.size += size - replaced
        return before, replaced

    def forget_before(self, version: int) -> None:
        """Drop undo records that neither ``version`` nor an open view needs."""
        oldest = min([version, *(view.version for view in self.views)])
        for made in [made for made in self.undo if made <= oldest]:
            del self.undo[made], self.undo_sizes[made]

    def undone(self, version: int) -> Changes:
        """What differs between the dict and ``version``."""
        changes: Changes = {}
        # From new to old: of a key that changed twice the oldest record counts.
        for made in range(self.newest, version, -1):
            changes.update(self.undo[made])
        return changes

    def memory_used_bytes(self) -> int:
        records = sum(sys.getsizeof(record) for record in list(self.undo.values()))
        return sys.getsizeof(self.pairs) + self.size + records + sum(list(self.undo_sizes.values()))


class _UndoView(StateView):
    """One version of a ``_State``."""

    def __init__(self, state: _State, version: int, lock: Lock) -> None:
        self.version = version
        self._state = state
        self._lock = lock
        self._undone: tuple[int, Changes] = (-1, {})
        with lock:
            state.views.add(self)

    def detach(self) -> None:
        """Take a copy; called under the lock when the state is about to lose this version."""
        copy = _State(self._pairs(), self.version)
        self._state.views.discard(self)
        self._state = copy
        self._undone = (-1, {})

    def _changes(self) -> Changes:
        as_of, undone = self._undone
        if as_of != self._state.changed:
            undone = self._state.undone(self.version)
            self._undone = (self._state.changed, undone)
        return undone

    def _pairs(self) -> dict[bytes, bytes]:
        pairs = dict(self._state.pairs)
        for key, value in self._changes().items():
            if value is None:
                pairs.pop(key, None)
            else:
                pairs[key] = value
        return pairs

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            pairs, undone = self._state.pairs, self._changes()
            if not undone:
                return list(map(pairs.get, keys))
            return [undone[key] if key in undone else pairs.get(key) for key in keys]

    def entries(self) -> Iterator[Pair]:
        with self._lock:
            return iter(self._pairs().items())

    def num_keys(self) -> int:
        with self._lock:
            undone = self._changes()
            now = self._state.pairs
            return len(now) + sum((old is not None) - (key in now) for key, old in undone.items())

    def close(self) -> None:
        with self._lock:
            self._state.views.discard(self)
