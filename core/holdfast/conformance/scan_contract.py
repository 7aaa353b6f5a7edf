"""Capabilities: what is declared works, and what is not declared says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.conformance.base import Contract, codec, commit, contents, key, value
from holdfast.contract.capabilities import DURABILITY, Capability
from holdfast.errors import IllegalState, InvalidRequest, UnsupportedOperation
from holdfast.plugins.validation import check_provider_class

if TYPE_CHECKING:
    from holdfast.conformance.backend import Backend
    from holdfast.conformance.base import OpenProvider
    from holdfast.contract.provider import StateStoreProvider
    from holdfast.contract.store import Pair

TIMED_KEY = "user string, at long"
PREFIXED_KEY = "country string, city string, street int"


def declares(backend: Backend, capability: Capability) -> bool:
    """Whether the provider under test declares ``capability``."""
    return capability in backend.provider_class.capabilities


class ScanContract(Contract):
    """The promises of declared capabilities."""

    def test_declarations_are_complete(self, backend: Backend) -> None:
        provider_class = check_provider_class(backend.provider_class)
        assert len(provider_class.capabilities & DURABILITY) == 1
        if provider_class.settings is not None:
            for setting in provider_class.settings.declared():
                assert setting.help.endswith("."), f"{setting.key}: its help is a sentence"

    def test_range_scan(self, backend: Backend, open_provider: OpenProvider) -> None:
        provider = open_provider(key_schema=TIMED_KEY, key_index_ordinal=1)
        at = codec(TIMED_KEY).encode_one
        times = [None, -(2**63), -5, -1, 0, 1, 2, 300, 2**63 - 1]
        rows = [(t, at((user, t)), value(i)) for i, t in enumerate(times) for user in ("ann", "bob")]
        if not declares(backend, Capability.RANGE_SCAN):
            with provider.get_store(0) as undeclared, pytest.raises(UnsupportedOperation):
                undeclared.get_range(None, None)
            return

        def between(low: int | None, high: int | None) -> list[Pair]:
            """The same by a plain filter. A null comes before every time."""
            return [
                (k, v)
                for t, k, v in rows
                if (low is None if t is None else (low is None or low <= t) and (high is None or t <= high))
            ]

        commit(provider, 0, {k: v for _, k, v in reversed(rows)})
        with provider.get_read_store(1) as store:
            for low, high in [(-1, 1), (0, 0), (-(2**63), -2), (2, 2**63 - 1), (3, 299), (5, 1), (None, 0), (1, None)]:
                start = None if low is None else at((None, low))
                end = None if high is None else at(("ignored", high))
                found = list(store.get_range(start, end))
                assert sorted(found) == sorted(between(low, high)), f"range {low}..{high} is wrong"
                order = [times.index(codec(TIMED_KEY).decode_one(k)[1]) for k, _ in found]
                assert order == sorted(order), f"range {low}..{high} is not in order, nulls first"
            assert sorted(store.get_range(None, None)) == sorted(between(None, None))

    def test_range_scan_sees_own_changes(self, backend: Backend, open_provider: OpenProvider) -> None:
        if not declares(backend, Capability.RANGE_SCAN):
            pytest.skip("the provider does not declare RANGE_SCAN")
        provider = open_provider(key_schema=TIMED_KEY, key_index_ordinal=1)
        at = codec(TIMED_KEY).encode_one
        commit(provider, 0, {at(("ann", t)): value(t) for t in range(10)})
        with provider.get_store(1) as store:
            store.remove(at(("ann", 4)))
            store.put(at(("ann", 5)), value(55))
            store.put(at(("bob", 6)), value(66))
            scan = store.get_range(at((None, 4)), at((None, 6)))
            assert sorted(scan) == sorted(
                [(at(("ann", 5)), value(55)), (at(("ann", 6)), value(6)), (at(("bob", 6)), value(66))]
            )
            for pair_key, _ in store.get_range(at((None, 0)), at((None, 3))):
                store.remove(pair_key)
            assert len(contents(store)) == 6
            store.abort()
            with pytest.raises(IllegalState):
                store.get_range(None, None)

    def test_range_scan_without_an_index_column(self, backend: Backend, provider: StateStoreProvider) -> None:
        if not declares(backend, Capability.RANGE_SCAN):
            pytest.skip("the provider does not declare RANGE_SCAN")
        commit(provider, 0, {key("a"): value(1)})
        with provider.get_read_store(1) as store:
            assert list(store.get_range(None, None)) == [(key("a"), value(1))]
            with pytest.raises(InvalidRequest):
                store.get_range(key("a"), None)

    def test_prefix_scan(self, backend: Backend, open_provider: OpenProvider) -> None:
        provider = open_provider(key_schema=PREFIXED_KEY)
        row = codec(PREFIXED_KEY).encode_one
        country = codec("country string").encode_one
        city = codec("country string, city string").encode_one
        places: list[tuple[str | None, str | None, int | None]] = [
            ("no", "oslo", 1),
            ("no", "oslo", 2),
            ("no", "os", 1),
            ("n", "oslo", 1),
            ("", "", 0),
        ]
        places += [("no", None, 3), (None, "oslo", 4), (None, None, None)]
        if not declares(backend, Capability.PREFIX_SCAN):
            with provider.get_store(0) as undeclared, pytest.raises(UnsupportedOperation):
                undeclared.prefix_scan(country(("no",)), 1)
            return
        commit(provider, 0, {row(place): value(i) for i, place in enumerate(places)})
        with provider.get_store(1) as store:

            def found(prefix: bytes, columns: int) -> list[Any]:
                decoded = [tuple(codec(PREFIXED_KEY).decode_one(k)) for k, _ in store.prefix_scan(prefix, columns)]
                return sorted(decoded, key=str)

            for name in ("no", "n", "", None, "x"):
                assert found(country((name,)), 1) == sorted([p for p in places if p[0] == name], key=str)
            assert found(city(("no", "oslo")), 2) == [("no", "oslo", 1), ("no", "oslo", 2)]
            assert found(city((None, None)), 2) == [(None, None, None)]
            assert found(row(("no", "oslo", 2)), 3) == [("no", "oslo", 2)]
            store.remove(row(("no", "oslo", 1)))
            store.put(row(("no", "oslo", 9)), value(9))
            assert found(city(("no", "oslo")), 2) == [("no", "oslo", 2), ("no", "oslo", 9)]
            for columns in (0, 4):
                with pytest.raises(InvalidRequest):
                    list(store.prefix_scan(row(places[0]), columns))
            store.commit()
            with pytest.raises(IllegalState):
                store.prefix_scan(country(("no",)), 1)
