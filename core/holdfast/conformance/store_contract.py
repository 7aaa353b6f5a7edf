"""One store: reading, writing, iterating, and what is refused when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from holdfast.conformance.base import Contract, commit, contents, key, read, value
from holdfast.errors import IllegalState, InvalidRequest

if TYPE_CHECKING:
    from holdfast.conformance.base import OpenProvider
    from holdfast.contract.provider import StateStoreProvider
    from holdfast.contract.store import StateStore

A, B, C = key("a"), key("b"), key("c")


class StoreContract(Contract):
    """The promises of ``StateStore`` and ``ReadStateStore``."""

    def test_version_zero_is_empty(self, provider: StateStoreProvider) -> None:
        with provider.get_store(0) as store:
            assert store.version == 0
            assert store.id == provider.store_id
            assert not store.has_committed
            assert store.get(A) is None
            assert store.get_many([A, B]) == [None, None]
            assert contents(store) == {}
            assert store.metrics.num_keys == 0
        assert read(provider, 0) == {}

    def test_get_put_remove(self, provider: StateStoreProvider) -> None:
        with provider.get_store(0) as store:
            store.put(A, value(1))
            assert store.get(A) == value(1)
            store.put(A, value(2))
            assert store.get(A) == value(2), "the second put of a key did not replace the first"
            store.put(B, value(3))
            store.remove(A)
            assert store.get(A) is None, "a removed key still has a value"
            store.remove(C)
            store.put(A, value(4))
            assert contents(store) == {A: value(4), B: value(3)}
            assert store.commit() == 1
            assert store.has_committed
        assert read(provider, 1) == {A: value(4), B: value(3)}

    def test_changes_apply_on_top_of_the_opened_version(self, provider: StateStoreProvider) -> None:
        commit(provider, 0, {A: value(1), B: value(2)})
        with provider.get_store(1) as store:
            assert store.get(A) == value(1)
            store.remove(A)
            store.put(C, value(3))
            assert store.get(A) is None, "a key of the opened version is still there after its removal"
            assert store.get_many([C, A, B]) == [value(3), None, value(2)]
            assert contents(store) == {B: value(2), C: value(3)}
            store.commit()
        assert read(provider, 2) == {B: value(2), C: value(3)}, "a remove or a put was lost by the commit"

    def test_bulk_forms_agree_with_single_ones(self, provider: StateStoreProvider) -> None:
        keys = [key(f"k{i}", i) for i in range(500)]
        with provider.get_store(0) as store:
            store.put_many(keys, [value(i) for i in range(500)])
            assert store.get_many(keys[::-1]) == [value(i) for i in range(500)][::-1]
            assert store.get_many([keys[3], A, keys[3]]) == [value(3), None, value(3)]
            assert [store.get(k) for k in keys] == [value(i) for i in range(500)]
            store.put_many([A, B, A], [value(1), value(2), value(3)])
            assert store.get(A) == value(3), "of a key that occurs twice in put_many the last value stays"
            store.remove_many([*keys[100:], A, C])
            store.put_many([], [])
            store.remove_many([])
            assert store.get_many([]) == []
            store.commit()
        expected = {k: value(i) for i, k in enumerate(keys[:100])} | {B: value(2)}
        assert read(provider, 1) == expected
        with provider.get_read_store(1) as reader:
            assert reader.get_many([B, A, keys[99], keys[100]]) == [value(2), None, value(99), None]

    def test_array_forms_agree_with_single_ones(self, provider: StateStoreProvider) -> None:
        keys, values = [key(f"k{i}", i) for i in range(20)], [value(i) for i in range(20)]
        for version, kind in enumerate((pa.binary(), pa.large_binary())):
            with provider.get_store(version) as store:
                store.put_array(pa.array(keys, kind), pa.array(values, kind))
                store.remove_array(pa.array(keys[10:], kind))
                found = store.get_array(pa.array([A, *keys[8:12]], kind))
                assert found.to_pylist() == [None, values[8], values[9], None, None], f"arrays of {kind}"
                store.commit()
            assert read(provider, version + 1) == dict(zip(keys[:10], values, strict=False))

    def test_put_many_with_unequal_lengths_is_refused(self, provider: StateStoreProvider) -> None:
        with provider.get_store(0) as store, pytest.raises((InvalidRequest, ValueError)):
            store.put_many([A, B], [value(1)])

    def test_rows_of_all_sizes(self, provider: StateStoreProvider, open_provider: OpenProvider) -> None:
        pairs = {
            key("", 0): value(0, ""),
            key(None, None): value(None, None),
            key("\0"): value(1, "\0\0"),
            key("a\0"): value(2),
            key("ключ", -1): value(3, "значение 🔑"),
            key("k" * 600): value(4),
            key("k" * 601): value(5),
            key("k" * 100_000): value(6),
            key("big"): value(7, "v" * 3_000_000),
        }
        commit(provider, 0, pairs)
        assert read(open_provider(), 1) == pairs
        with provider.get_read_store(1) as store:
            assert {k: store.get(k) for k in pairs} == pairs

    def test_nulls_are_refused(self, provider: StateStoreProvider) -> None:
        none: Any = None
        with provider.get_store(0) as store:
            for call in (
                lambda: store.get(none),
                lambda: store.put(none, value(1)),
                lambda: store.put(A, none),
                lambda: store.remove(none),
                lambda: store.put_many([A, none], [value(1), value(2)]),
                lambda: store.put_many([A, B], [value(1), none]),
                lambda: store.remove_many([none]),
                lambda: store.get_many([A, none]),
            ):
                with pytest.raises(InvalidRequest):
                    call()
            assert B not in contents(store)

    def test_callers_buffers_may_be_reused(self, provider: StateStoreProvider) -> None:
        key_buffer, value_buffer = bytearray(A), bytearray(value(1))
        with provider.get_store(0) as store:
            store.put(key_buffer, value_buffer)
            store.put_many([memoryview(bytearray(B))], [value_buffer])
            key_buffer[:], value_buffer[:] = C, value(9)
            assert contents(store) == {A: value(1), B: value(1)}, "the store kept the caller's buffer, not a copy"
            assert store.get(bytearray(A)) == value(1)
            store.commit()
        key_buffer[:], value_buffer[:] = B, value(8)
        assert read(provider, 1) == {A: value(1), B: value(1)}, "the store kept the caller's buffer, not a copy"

    def test_updates_while_iterating(self, provider: StateStoreProvider) -> None:
        before = {key(f"k{i}"): value(i) for i in range(50)}
        commit(provider, 0, before)
        with provider.get_store(1) as store:
            store.put(A, value(100))
            seen = {}
            for k, v in store.iterator():
                seen[k] = v
                store.remove(k)
                store.put(key("new" + str(len(seen))), value(-1))
            assert seen == before | {A: value(100)}, "an iterator shows the store as it was when it was asked for"
            assert len(contents(store)) == 51
            assert not (seen.keys() & contents(store).keys()), "removes while iterating were lost"
            store.commit()
        assert set(read(provider, 2).values()) == {value(-1)}

    def test_iterator_is_of_the_moment_it_was_asked_for(self, provider: StateStoreProvider) -> None:
        with provider.get_store(0) as store:
            store.put(A, value(1))
            iterator = store.iterator()
            store.put(A, value(2))
            store.put(B, value(3))
            assert dict(iterator) == {A: value(1)}

    def test_iterator_that_outlives_its_store_never_ends_early(self, provider: StateStoreProvider) -> None:
        pairs = {key(f"k{i}"): value(i) for i in range(3000)}
        commit(provider, 0, pairs)
        for finish in ("commit", "abort"):
            store = provider.get_store(1)
            iterator = store.iterator()
            first = next(iterator)
            getattr(store, finish)()
            try:
                rest = dict(iterator)
            except Exception:  # noqa: BLE001, S112 - raising anything is allowed, stopping early is not
                continue
            assert dict([first]) | rest == pairs

    def _assert_over(self, store: StateStore) -> None:
        for name, call in {
            "put": lambda: store.put(A, value(2)),
            "remove": lambda: store.remove(A),
            "get": lambda: store.get(A),
            "iterator": store.iterator,
            "commit": store.commit,
        }.items():
            with pytest.raises(IllegalState, match=f"Cannot {name} after already committed or aborted"):
                call()
        for bulk in (
            lambda: store.put_many([A], [value(2)]),
            lambda: store.remove_many([A]),
            lambda: store.get_many([A]),
        ):
            with pytest.raises(IllegalState):
                bulk()

    def test_nothing_more_after_commit(self, provider: StateStoreProvider) -> None:
        store = provider.get_store(0)
        store.put(A, value(1))
        store.commit()
        assert store.has_committed
        self._assert_over(store)
        store.abort()
        assert store.has_committed, "abort after a commit changes nothing"
        assert read(provider, 1) == {A: value(1)}, "abort after a commit took the version back"

    def test_nothing_more_after_abort(self, provider: StateStoreProvider) -> None:
        store = provider.get_store(0)
        store.put(A, value(1))
        store.abort()
        assert not store.has_committed
        self._assert_over(store)
        store.abort()
        assert store.version == 0
        assert store.metrics.num_keys == 0

    def test_leaving_the_block_without_commit_aborts(self, provider: StateStoreProvider) -> None:
        with provider.get_store(0) as store:
            store.put(A, value(1))
        assert not store.has_committed
        with pytest.raises(IllegalState):
            store.put(B, value(1))

    def test_read_store(self, provider: StateStoreProvider) -> None:
        commit(provider, 0, {A: value(1)})
        reader = provider.get_read_store(1)
        assert reader.version == 1
        assert reader.id == provider.store_id
        assert reader.get(A) == value(1)
        assert reader.get(B) is None
        assert contents(reader) == {A: value(1)}
        assert reader.metrics.num_keys == 1
        reader.abort()
        reader.abort()
        with pytest.raises(IllegalState):
            reader.get(A)

    def test_num_keys(self, provider: StateStoreProvider) -> None:
        with provider.get_store(0) as store:
            store.put(A, value(1))
            store.put(A, value(2))
            store.put(B, value(1))
            store.remove(C)
            assert store.metrics.num_keys == 2
            store.commit()
            assert store.metrics.num_keys == 2
        with provider.get_store(1) as store:
            store.remove(A)
            store.put(B, value(5))
            store.put(C, value(6))
            store.remove(key("never there"))
            assert store.metrics.num_keys == 2
            store.remove(C)
            assert store.metrics.num_keys == 1
            store.commit()
            assert store.metrics.num_keys == 1
        with provider.get_read_store(2) as reader:
            assert reader.metrics.num_keys == 1

    def test_custom_metrics_are_the_declared_ones(self, provider: StateStoreProvider) -> None:
        declared = set(provider.supported_custom_metrics)
        assert len({metric.name for metric in declared}) == len(declared), "two custom metrics have one name"
        with provider.get_store(0) as store:
            store.put(A, value(1))
            for when in ("before commit", "after commit"):
                metrics = store.metrics
                assert set(metrics.custom_metrics) == declared, f"{when}: values and declarations differ"
                assert metrics.memory_used_bytes >= 0
                if when == "before commit":
                    store.commit()
