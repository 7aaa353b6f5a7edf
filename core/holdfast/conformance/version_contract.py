"""Versions: opening, replacing, isolating and cleaning them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.conformance.base import Contract, commit, contents, key, read, value
from holdfast.contract.capabilities import Capability
from holdfast.contract.faults import watch_fault_points
from holdfast.errors import CommitFailed, CorruptState, Fenced, InvalidRequest, MissingVersion, UnsupportedOperation

if TYPE_CHECKING:
    from holdfast.conformance.backend import Backend
    from holdfast.conformance.base import OpenProvider
    from holdfast.contract.provider import StateStoreProvider

A, B, C = key("a"), key("b"), key("c")


class VersionContract(Contract):
    """The promises of ``StateStoreProvider`` about versions."""

    @pytest.fixture
    def time_travel(self, backend: Backend) -> None:
        """Skip the test where old versions are not promised."""
        if Capability.TIME_TRAVEL not in backend.provider_class.capabilities:
            pytest.skip("the provider does not declare TIME_TRAVEL")

    @pytest.mark.parametrize("open_", ["get_store", "get_read_store"])
    def test_versions_that_do_not_exist(self, provider: StateStoreProvider, open_: str) -> None:
        for no_version in (-1, 2**63, None, "1"):
            with pytest.raises(InvalidRequest):
                getattr(provider, open_)(no_version)
        with pytest.raises(MissingVersion):
            getattr(provider, open_)(1)
        commit(provider, commit(provider, 0, {A: value(1)}), {B: value(2)})
        for gap in (3, 4, 1000):
            with pytest.raises(MissingVersion):
                getattr(provider, open_)(gap)

    def test_each_version_keeps_its_content(self, provider: StateStoreProvider, open_provider: OpenProvider) -> None:
        commit(provider, 0, {A: value(1), B: value(1)})
        commit(provider, 1, {A: value(2)}, removes=(B,))
        for other in (provider, open_provider()):
            assert read(other, 2) == {A: value(2)}
            assert read(other, 1) == {A: value(1), B: value(1)}
            assert read(other, 0) == {}

    def test_commit_without_changes_makes_a_version(self, provider: StateStoreProvider) -> None:
        commit(provider, 0, {A: value(1)})
        assert commit(provider, 1, {}) == 2
        assert commit(provider, 2, {}) == 3
        assert read(provider, 3) == {A: value(1)}

    def test_a_new_provider_finds_what_was_committed(self, backend: Backend) -> None:
        for version in range(5):
            provider = backend.open()
            commit(provider, version, {A: value(version), key(f"k{version}"): value(version)})
            provider.close()
        provider = backend.open()
        assert read(provider, 5) == {A: value(4)} | {key(f"k{v}"): value(v) for v in range(5)}
        provider.close()

    def test_the_same_version_again_replaces_it(
        self, provider: StateStoreProvider, open_provider: OpenProvider
    ) -> None:
        commit(provider, 0, {A: value(1), B: value(1)})
        commit(provider, 1, {A: value(2), C: value(2)}, removes=(B,))
        commit(provider, 1, {A: value(3)})
        expected = {A: value(3), B: value(1)}
        assert read(provider, 2) == expected, "something of the replaced version is still there"
        assert read(open_provider(), 2) == expected
        assert read(provider, 1) == {A: value(1), B: value(1)}
        commit(open_provider(), 1, {A: value(4)})
        assert read(open_provider(), 2) == {A: value(4), B: value(1)}
        commit(open_provider(), 2, {C: value(5)})
        assert read(open_provider(), 3) == {A: value(4), B: value(1), C: value(5)}

    def test_a_version_made_again_by_another_provider_is_seen(
        self, provider: StateStoreProvider, open_provider: OpenProvider
    ) -> None:
        commit(provider, 0, {A: value(0)})
        commit(provider, 1, {A: value(1), B: value(1)})
        # The batch ran again on another executor. This provider still has the version as it made it.
        other = open_provider()
        commit(other, 1, {A: value(2)})
        assert read(provider, 2) == {A: value(2)}, "the provider shows its own version, which was replaced"
        commit(other, 2, {C: value(3)})
        commit(other, 3, {C: value(4)})
        assert read(provider, 4) == {A: value(2), C: value(4)}, "later versions were applied to a replaced one"

    def test_everybody_agrees_on_an_identity(self, provider: StateStoreProvider, open_provider: OpenProvider) -> None:
        for version in range(3):
            with provider.get_store(version) as store:
                store.put(A, value(version))
                store.commit()
                made = store.identity
            for other in (provider, open_provider()):
                for open_ in (other.get_store, other.get_read_store):
                    for known in (None, made):
                        with open_(version + 1, known) as opened:
                            assert opened.identity == made, f"version {version + 1} is said to be two different ones"
                            assert opened.get(A) == value(version)

    def test_another_version_of_that_number_is_told_apart(
        self, provider: StateStoreProvider, open_provider: OpenProvider
    ) -> None:
        commit(provider, 0, {A: value(0)})
        identities = []
        # The second time the batch runs on another executor. The first one still has the version as it made it.
        for maker, number in ((provider, 1), (open_provider(), 2)):
            with maker.get_store(1) as store:
                store.put(A, value(number))
                store.commit()
                identities.append(store.identity)
        before, now = identities
        assert now is None or before != now, "two versions of one number have one identity"
        with provider.get_store(2, now) as store:
            assert contents(store) == {A: value(2)}, "another version was asked for than the one that is shown"
            assert store.identity == now
        if before is not None:
            for other in (provider, open_provider()):
                for open_ in (other.get_store, other.get_read_store):
                    with pytest.raises(CorruptState, match=before):
                        open_(2, before)

    def test_a_base_made_again_while_a_store_is_open(self, provider: StateStoreProvider) -> None:
        commit(provider, 0, {A: value(1)})
        with provider.get_store(1) as store:
            store.put(C, value(1))
            store.remove(B)
            commit(provider, 0, {B: value(2)})
            try:
                store.commit()
            except Fenced:
                with pytest.raises(MissingVersion):
                    provider.get_read_store(2)
            else:
                assert read(provider, 2) == {A: value(1), C: value(1)}, "a commit was built on another base than it saw"

    def test_abort_leaves_nothing(self, provider: StateStoreProvider, open_provider: OpenProvider) -> None:
        commit(provider, 0, {A: value(1)})
        with provider.get_store(1) as store:
            store.put(A, value(2))
            store.put(B, value(2))
            store.remove(A)
            store.abort()
        for other in (provider, open_provider()):
            with pytest.raises(MissingVersion):
                other.get_read_store(2)
            assert read(other, 1) == {A: value(1)}, "an aborted change reached the version it was made on"
        commit(provider, 1, {C: value(3)})
        assert read(provider, 2) == {A: value(1), C: value(3)}

    def test_nobody_sees_uncommitted_changes(self, provider: StateStoreProvider, open_provider: OpenProvider) -> None:
        commit(provider, 0, {A: value(1)})
        with provider.get_store(1) as store:
            store.put(A, value(2))
            store.put(B, value(2))
            other = open_provider()
            for reader in (provider, other):
                assert read(reader, 1) == {A: value(1)}, "a change was visible before its commit"
                with pytest.raises(MissingVersion):
                    reader.get_read_store(2)
            store.commit()
            assert read(other, 2) == {A: value(2), B: value(2)}

    def test_two_stores_of_one_version_are_isolated(self, provider: StateStoreProvider) -> None:
        commit(provider, 0, {A: value(1)})
        with provider.get_store(1) as first, provider.get_store(1) as second:
            first.put(A, value(10))
            first.put(B, value(10))
            second.remove(A)
            assert contents(first) == {A: value(10), B: value(10)}
            assert contents(second) == {}
            first.commit()
            assert contents(second) == {}, "a store saw what another attempt committed"
            second.put(C, value(20))
            second.commit()
        assert read(provider, 2) == {C: value(20)}

    def test_readers_keep_their_version(self, provider: StateStoreProvider, open_provider: OpenProvider) -> None:
        pairs = {key(f"k{i}"): value(i) for i in range(1000)}
        commit(provider, 0, pairs)
        with provider.get_read_store(1) as reader, open_provider().get_read_store(1) as foreign:
            iterator = foreign.iterator()
            first = next(iterator)
            commit(provider, 1, {A: value(1)}, removes=tuple(pairs))
            commit(provider, 1, {B: value(2)}, removes=tuple(pairs))
            provider.do_maintenance()
            assert contents(reader) == pairs
            assert reader.get(A) is None
            assert dict([first, *iterator]) == pairs

    def test_stores_do_not_mix(self, open_provider: OpenProvider) -> None:
        places = [
            {"operator_id": operator, "partition_id": partition, "store_name": name}
            for operator in (0, 1)
            for partition in (0, 1, 10)
            for name in ("default", "left", "right")
        ]
        for number, place in enumerate(places):
            commit(open_provider(**place), 0, {A: value(number)})
        for number, place in enumerate(places):
            assert read(open_provider(**place), 1) == {A: value(number)}, f"{place} shows another store's state"

    def test_an_error_in_commit_can_be_retried(self, provider: StateStoreProvider, open_provider: OpenProvider) -> None:
        names = type(provider).fault_points
        if not names:
            pytest.skip("the provider declares no fault points")
        commit(provider, 0, {A: value(0)})
        for version, name in enumerate(names, start=1):
            failures = [OSError(f"injected at {name}")]

            def fail_once(reached: str, name: str = name, failures: list[OSError] = failures) -> None:
                if reached == name and failures:
                    raise failures.pop()

            with provider.get_store(version) as store, watch_fault_points(fail_once):
                store.put(B, value(version))
                with pytest.raises(CommitFailed, match=f"Error committing version {version + 1} into"):
                    store.commit()
                assert not store.has_committed
                assert store.get(B) == value(version), f"after an error at {name} the store lost its changes"
                assert store.commit() == version + 1
            assert read(open_provider(), version + 1) == {A: value(0), B: value(version)}

    @pytest.mark.usefixtures("time_travel")
    def test_old_versions_stay_readable(self, backend: Backend, open_provider: OpenProvider) -> None:
        history = self._history(open_provider(), versions=25)
        other = open_provider()
        for version, expected in enumerate(history):
            assert read(other, version) == expected, f"version {version} is not what was committed"

    def test_maintenance_keeps_what_is_promised(self, backend: Backend, open_provider: OpenProvider) -> None:
        frugal = backend.with_conf(minBatchesToRetain="4", stateStore__minDeltasForSnapshot="2")
        provider = open_provider(on=frugal)
        history = self._history(provider, versions=20, maintain=True)
        promised = 4 if Capability.TIME_TRAVEL in backend.provider_class.capabilities else 2
        for other in (provider, open_provider(on=frugal)):
            for version in range(20 - promised + 1, 21):
                assert read(other, version) == history[version], f"maintenance damaged version {version}"

    @pytest.mark.usefixtures("time_travel")
    def test_a_future_that_did_not_happen_is_gone(self, open_provider: OpenProvider) -> None:
        self._history(open_provider(), versions=6)
        restarted = open_provider()
        base = read(restarted, 3)
        commit(restarted, 3, {A: value(-1)})
        expected = base | {A: value(-1)}
        for other in (restarted, open_provider()):
            assert read(other, 4) == expected
            for version in (5, 6):
                with pytest.raises(MissingVersion):
                    other.get_store(version)
        commit(restarted, 4, {B: value(-2)})
        assert read(open_provider(), 5) == expected | {B: value(-2)}

    def test_a_state_that_begins_later(
        self, backend: Backend, provider: StateStoreProvider, open_provider: OpenProvider
    ) -> None:
        if Capability.LATE_START not in backend.provider_class.capabilities:
            with pytest.raises(UnsupportedOperation):
                provider.start_at(7)
            return
        provider.start_at(7)
        other = open_provider()
        other.start_at(7)
        for each in (provider, other):
            assert read(each, 7) == {}, "the version that the state begins at is not there, or not empty"
            for version in (6, 8):
                with pytest.raises(MissingVersion):
                    each.get_store(version)
        commit(provider, 7, {A: value(1)})
        other.start_at(7)
        for each in (provider, other, open_provider()):
            assert read(each, 8) == {A: value(1)}, "beginning a second time took away what was committed"
        commit(other, 7, {B: value(2)})
        commit(other, 8, {C: value(3)})
        assert read(open_provider(), 9) == {B: value(2), C: value(3)}

    def test_state_does_not_begin_a_second_time(
        self, backend: Backend, provider: StateStoreProvider, open_provider: OpenProvider
    ) -> None:
        commit(provider, commit(provider, 0, {A: value(1)}), {B: value(2)})
        expected = InvalidRequest
        if Capability.LATE_START not in backend.provider_class.capabilities:
            expected = UnsupportedOperation
        for version in (1, 2, 7):
            with pytest.raises(expected):
                provider.start_at(version)
        for each in (provider, open_provider()):
            assert read(each, 2) == {A: value(1), B: value(2)}
            with pytest.raises(MissingVersion):
                each.get_store(7)

    def _history(
        self, provider: StateStoreProvider, *, versions: int, maintain: bool = False
    ) -> list[dict[bytes, bytes]]:
        """Commit versions that add, change and remove; returns what each must contain."""
        model: dict[bytes, bytes] = {}
        history = [model]
        for version in range(versions):
            puts = {key(f"k{version}"): value(version), A: value(version), key(f"k{version // 2}"): value(-version)}
            removes = (key(f"k{version - 5}"), key(f"k{version - 9}"))
            model = {k: v for k, v in (model | puts).items() if k not in removes}
            commit(provider, version, puts, removes)
            history.append(model)
            if maintain:
                provider.do_maintenance()
        return history
