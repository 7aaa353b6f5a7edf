"""Recent versions of one store: the older ones in LMDB, the newest as layers in memory until it pays to write them.

A put into LMDB costs many times a put into a dict, and less per change when many are sorted and written together.
A batch that runs again only drops a layer. What is lost with the process is in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING
from weakref import WeakSet

from holdfast import StateMap
from holdfast_lmdb.layers import Layer
from holdfast_lmdb.steps import Step
from holdfast_lmdb.view import LmdbView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast import Changes, Pair, Piece
    from holdfast_lmdb.environment import Environment
    from holdfast_lmdb.key_order import Orders

_MOST_LAYERS = 8
"""More are written to LMDB: opening a version lays all of them over it."""

_AHEAD = 2
"""Versions that LMDB can be ahead of the query after a restart and still be of use."""

_LOAD_CHUNK = 100_000
"""Pairs sorted and written together while loading."""


@dataclass
class Recent:
    """A version that is not in LMDB yet."""

    changes: Layer
    """What it changed."""
    overlay: Layer | None
    """What it changed together with all recent versions before it; kept for those that are likely to be opened."""
    identity: str | None
    num_keys: int


class LmdbMap(StateMap):
    """The map of all providers of one store in this process: a new run finds what the old one had."""

    def __init__(self, environment: Environment, orders: Orders) -> None:
        self.environment = environment
        self._orders = orders
        self.lock = RLock()
        """Held by the providers during every call."""
        self.keep = _AHEAD
        """Versions to hold."""
        self.overlay_limit = 0
        """Bytes of layers before they are written."""
        self._recent: dict[int, Recent] = {}
        self._views: WeakSet[LmdbView] = WeakSet()
        self.flushes = 0
        self.rebuilds = 0

    def identities(self) -> Mapping[int, str | None]:
        stored = {version: identity for version, (identity, _) in self.environment.versions.items()}
        return {**stored, **{version: recent.identity for version, recent in self._recent.items()}}

    @property
    def newest(self) -> int:
        """The newest version held."""
        return max(self._recent, default=self.environment.newest)

    def reset(self, version: int, identity: str | None, pairs: Iterable[Pair]) -> None:
        self._begin_rebuild()
        rest = iter(pairs)
        while chunk := dict(islice(rest, _LOAD_CHUNK)):
            self.environment.load(chunk)
        self.environment.finish(version, identity)

    def load(self, version: int, pieces: Iterable[Piece]) -> None:
        self._begin_rebuild()
        identity: str | None = None
        for piece in pieces:
            identity = piece.identity
            for start in range(0, len(piece.keys), _LOAD_CHUNK):
                part = slice(start, start + _LOAD_CHUNK)
                self.environment.load(dict(zip(piece.keys[part], piece.values[part], strict=True)))
        self.environment.finish(version, identity)

    def _begin_rebuild(self) -> None:
        self.rebuilds += 1
        self._recent.clear()
        self.environment.clear()

    def apply(self, version: int, identity: str | None, changes: Changes) -> int:
        self._go_back_to(version - 1)
        num_keys = self._num_keys(version - 1) + self._growth(version - 1, changes)
        # A copy: the caller may go on with its changes if the commit fails after this.
        layer = Layer(dict(changes))
        self._recent[version] = Recent(layer, None, identity, num_keys)
        for recent in [recent for v, recent in self._recent.items() if v < version - 1]:
            recent.overlay = None
        try:
            self._flush_if_large()
        except BaseException:
            self._recent.pop(version, None)
            raise
        return num_keys

    def _go_back_to(self, version: int) -> None:
        self._recent = {v: recent for v, recent in self._recent.items() if v <= version}
        if self.environment.newest > version:
            self.environment.back_to(version)

    def _num_keys(self, version: int) -> int:
        recent = self._recent.get(version)
        return self.environment.versions[version][1] if recent is None else recent.num_keys

    def _growth(self, base: int, changes: Changes) -> int:
        """By how many keys these changes make a version larger."""
        added = sum(value is not None for value in changes.values())
        view = self.view(base)
        # Whoever made the changes has a view of that version, and has mostly asked it for these keys.
        identity = self.identities()[base]
        for other in self._views if identity is not None else ():
            if (other.version, other.identity) == (base, identity):
                view.learn_from(other)
        try:
            return added - view.count(changes)
        finally:
            view.close()

    def view(self, version: int) -> LmdbView:
        view = LmdbView(version, self.environment, self._orders, self._overlay(version), self._num_keys(version))
        self._views.add(view)
        return view

    def _overlay(self, version: int) -> Layer:
        """All that differs between what is in LMDB and ``version``."""
        stored = self.environment.newest
        if version <= stored:
            return Layer(self.environment.undone(version))
        recent = self._recent[version]
        if recent.overlay is None:
            below = version - 1
            recent.overlay = (
                recent.changes if below == stored else Layer({**self._overlay(below).changes, **recent.changes.changes})
            )
        return recent.overlay

    def _flush_if_large(self) -> None:
        newest = self.newest
        if self.overlay_size() > self.overlay_limit or len(self._recent) > _MOST_LAYERS:
            # The newest may be made again; then it is better not to have written it.
            alone = newest in self._recent and self._recent[newest].changes.size > self.overlay_limit
            self.flush(newest if alone else newest - 1)

    def flush(self, version: int) -> None:
        """Write the layers up to ``version`` to LMDB."""
        steps = [
            Step(v, recent.identity, recent.num_keys, recent.changes.changes)
            for v, recent in self._recent.items()
            if v <= version
        ]
        if not steps:
            return
        newest = self.newest
        keep_from = newest - max(self.keep, _AHEAD + 1) + 1
        try:
            self.environment.forward(steps, keep_from + 1, keep_from)
        except BaseException:
            if not self.environment.versions:
                self._recent.clear()  # what they are laid over is gone
            raise
        self._recent = {v: recent for v, recent in self._recent.items() if v > version}
        for recent in self._recent.values():
            recent.overlay = None  # it need not have what is in LMDB now
        self.flushes += 1

    def overlay_size(self) -> int:
        """Bytes of the layers."""
        return sum(recent.changes.size for recent in list(self._recent.values()))

    def memory_used_bytes(self) -> int:
        return self.overlay_size()
