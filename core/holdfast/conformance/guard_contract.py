"""The guard: an attempt that may not publish does not, and nothing of it is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.conformance.base import Contract, commit, contents, key, read, value
from holdfast.contract.provider import CommitGuard
from holdfast.errors import Fenced, IllegalState, MissingVersion, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.conformance.base import OpenProvider
    from holdfast.contract.provider import StateStoreProvider
    from holdfast.contract.store import StateStore

A, B = key("a"), key("b")


class RecordingGuard(CommitGuard):
    """Remembers who asked, and answers what the test wants."""

    def __init__(self) -> None:
        self.asked: list[StateStore] = []
        self.answer: Callable[[StateStore], None] = lambda _store: None

    def before_publish(self, store: StateStore) -> None:
        """Remember the question, then answer it."""
        self.asked.append(store)
        self.answer(store)


def refuse(store: StateStore) -> None:
    """The answer to an attempt that was given up."""
    raise Fenced(f"another attempt owns version {store.version + 1}")


class GuardContract(Contract):
    """The promises around ``CommitGuard``."""

    @pytest.fixture
    def guard(self) -> RecordingGuard:
        """The guard of ``guarded``."""
        return RecordingGuard()

    @pytest.fixture
    def guarded(self, open_provider: OpenProvider, guard: RecordingGuard) -> StateStoreProvider:
        """A provider that must ask before it publishes."""
        return open_provider(guard)

    def test_asked_once_per_commit_with_the_store_itself(
        self, guarded: StateStoreProvider, guard: RecordingGuard
    ) -> None:
        with guarded.get_store(0) as store:
            store.put(A, value(1))
            assert guard.asked == [], "the guard was asked before the commit; its answer may have changed by then"
            store.commit()
            assert len(guard.asked) == 1, "the guard must be asked exactly once per commit"
            assert guard.asked[0] is store, "the guard must be given the store that get_store returned"
        with guarded.get_store(1) as empty:
            empty.commit()
        assert guard.asked == [store, empty], "a commit without changes asks too"
        with guarded.get_store(2) as aborted:
            aborted.put(A, value(2))
        assert len(guard.asked) == 2, "an abort publishes nothing and asks nothing"

    def test_nothing_is_visible_when_the_guard_is_asked(
        self, guarded: StateStoreProvider, guard: RecordingGuard, open_provider: OpenProvider
    ) -> None:
        commit(guarded, 0, {A: value(1)})
        other = open_provider()
        seen: list[dict[bytes, bytes]] = []

        def look(_store: StateStore) -> None:
            with pytest.raises(MissingVersion):
                other.get_read_store(2)
            seen.append(read(other, 1))

        guard.answer = look
        commit(guarded, 1, {A: value(2)})
        assert seen == [{A: value(1)}], "the version was changed before the guard was asked"
        assert read(other, 2) == {A: value(2)}

    def test_a_fenced_attempt_publishes_nothing(
        self, guarded: StateStoreProvider, guard: RecordingGuard, open_provider: OpenProvider
    ) -> None:
        commit(guarded, 0, {A: value(1)})
        guard.answer = refuse
        store = guarded.get_store(1)
        store.put(A, value(2))
        with pytest.raises(Fenced):
            store.commit()
        assert not store.has_committed
        with pytest.raises(IllegalState):
            store.put(A, value(3))
        for other in (guarded, open_provider()):
            with pytest.raises(MissingVersion):
                other.get_read_store(2)
            assert read(other, 1) == {A: value(1)}
        guard.answer = lambda _store: None
        commit(guarded, 1, {B: value(4)})
        assert read(open_provider(), 2) == {A: value(1), B: value(4)}, "something of the fenced attempt stayed behind"

    @pytest.mark.parametrize("same_provider", [True, False])
    def test_a_late_zombie_cannot_overwrite(
        self,
        guarded: StateStoreProvider,
        guard: RecordingGuard,
        open_provider: OpenProvider,
        same_provider: bool,
    ) -> None:
        commit(guarded, 0, {A: value(0)})
        zombie = guarded.get_store(1)
        zombie.put(A, value(666))
        zombie.put(key("zombie"), value(666))
        winner_provider = guarded if same_provider else open_provider()
        commit(winner_provider, 1, {A: value(1)})
        guard.answer = lambda store: refuse(store) if store is zombie else None
        with pytest.raises(Fenced):
            zombie.commit()
        for other in (guarded, winner_provider, open_provider()):
            assert read(other, 2) == {A: value(1)}, "an attempt that its guard stopped changed the state"
        commit(winner_provider, 2, {B: value(2)})
        assert read(open_provider(), 3) == {A: value(1), B: value(2)}

    def test_an_attempt_that_opens_later_may_overwrite(
        self, guarded: StateStoreProvider, open_provider: OpenProvider
    ) -> None:
        commit(guarded, 0, {A: value(1)})
        commit(guarded, 0, {B: value(2)})
        assert read(open_provider(), 1) == {B: value(2)}

    def test_no_answer_is_no_permission(
        self, guarded: StateStoreProvider, guard: RecordingGuard, open_provider: OpenProvider
    ) -> None:
        def no_answer(_store: StateStore) -> None:
            raise Unavailable("the driver did not answer")

        guard.answer = no_answer
        with guarded.get_store(0) as store:
            store.put(A, value(1))
            with pytest.raises(Unavailable, match="the driver did not answer"):
                store.commit()
            with pytest.raises(MissingVersion):
                open_provider().get_read_store(1)
            assert contents(store) == {A: value(1)}, "the store is still open and can be committed again"
            guard.answer = lambda _store: None
            assert store.commit() == 1
        assert read(open_provider(), 1) == {A: value(1)}
