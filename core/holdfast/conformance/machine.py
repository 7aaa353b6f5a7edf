"""A random walk over a provider, beside a model made of plain dicts that shares no code with it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from holdfast.conformance.base import Contract, key, value
from holdfast.contract.capabilities import Capability
from holdfast.errors import MissingVersion

if TYPE_CHECKING:
    from holdfast.conformance.backend import Backend
    from holdfast.contract.provider import StateStoreProvider
    from holdfast.contract.store import StateStore

# Few keys and few values, so that puts, removes and versions meet.
KEYS = st.sampled_from([key("a"), key(""), key("long" * 40), key("a", 1)])
VALUES = st.sampled_from([value(1), value(2), value(None, "x")])
PAIRS = st.lists(st.tuples(KEYS, VALUES), max_size=5)

STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("put_many"), PAIRS),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("remove_many"), st.lists(KEYS, max_size=4)),
    st.tuples(st.just("get"), st.lists(KEYS, max_size=5)),
    st.tuples(st.just("iterate")),
)


class StoreMachine(RuleBasedStateMachine):
    """Runs batches, some of them again, aborts and restarts; compares every answer with the model's."""

    backend: ClassVar[Backend]
    partitions: ClassVar[count[int]]

    def __init__(self) -> None:
        super().__init__()
        # A store of its own for every walk.
        self.partition = next(self.partitions)
        self.committed: dict[int, dict[bytes, bytes]] = {0: {}}
        self.identities: dict[int, str | None] = {}
        self.provider: StateStoreProvider

    @property
    def newest(self) -> int:
        """The newest committed version."""
        return max(self.committed)

    @initialize()
    def start(self) -> None:
        """Open the first provider."""
        self.provider = self.backend.open(partition_id=self.partition)

    # One rule is one whole batch: a walk whose every step is a single put rarely gets to a commit.
    @rule(
        steps=st.lists(STEPS, max_size=8),
        again=st.integers(0, 3),
        known=st.booleans(),
        finish=st.sampled_from(["commit"] * 4 + ["abort"]),
    )
    def run_batch(self, steps: list[tuple[Any, ...]], again: int, known: bool, finish: str) -> None:
        """Run a batch on the newest version, or on an older one as a query that goes back would."""
        oldest = 0 if Capability.TIME_TRAVEL in type(self.provider).capabilities else max(0, self.newest - 1)
        base = max(oldest, self.newest - max(0, again - 1))
        model = dict(self.committed[base])
        store = self.provider.get_store(base, self.identities.get(base) if known else None)
        for step, *arguments in steps:
            getattr(self, f"_{step}")(store, model, *arguments)
        if finish == "abort":
            store.abort()
            assert not store.has_committed
            return
        assert store.commit() == base + 1
        assert store.has_committed
        assert store.metrics.num_keys == len(model)
        # Versions above the new one belong to a future that did not happen.
        self.committed = {v: pairs for v, pairs in self.committed.items() if v <= base} | {base + 1: model}
        self.identities[base + 1] = store.identity

    def _put(self, store: StateStore, model: dict[bytes, bytes], k: bytes, v: bytes) -> None:
        store.put(k, v)
        model[k] = v

    def _put_many(self, store: StateStore, model: dict[bytes, bytes], pairs: list[tuple[bytes, bytes]]) -> None:
        store.put_many([k for k, _ in pairs], [v for _, v in pairs])
        model.update(pairs)

    def _remove(self, store: StateStore, model: dict[bytes, bytes], k: bytes) -> None:
        store.remove(k)
        model.pop(k, None)

    def _remove_many(self, store: StateStore, model: dict[bytes, bytes], keys: list[bytes]) -> None:
        store.remove_many(keys)
        for k in keys:
            model.pop(k, None)

    def _get(self, store: StateStore, model: dict[bytes, bytes], keys: list[bytes]) -> None:
        expected = [model.get(k) for k in keys]
        assert store.get_many(keys) == expected
        assert [store.get(k) for k in keys] == expected

    def _iterate(self, store: StateStore, model: dict[bytes, bytes]) -> None:
        pairs = list(store.iterator())
        assert len(pairs) == len(model)
        assert dict(pairs) == model
        assert store.metrics.num_keys == len(model)

    @rule(back=st.integers(0, 1))
    def read_version(self, back: int) -> None:
        """Look at a committed version."""
        version = max(0, self.newest - back)
        with self.provider.get_read_store(version) as reader:
            assert dict(reader.iterator()) == self.committed[version]
            assert reader.metrics.num_keys == len(self.committed[version])

    @rule(above=st.integers(1, 3))
    def read_what_is_not_there(self, above: int) -> None:
        """A version that was not committed must not open."""
        with pytest.raises(MissingVersion):
            self.provider.get_read_store(self.newest + above)

    @rule()
    def maintain(self) -> None:
        """Run maintenance."""
        self.provider.do_maintenance()

    @rule()
    def restart(self) -> None:
        """Go on with a new provider."""
        self.provider.close()
        self.provider = self.backend.open(partition_id=self.partition)

    def teardown(self) -> None:
        """Every walk ends with a look through a new provider."""
        if hasattr(self, "provider"):
            self.provider.close()
            provider = self.backend.open(partition_id=self.partition)
            with provider.get_read_store(self.newest) as reader:
                assert dict(reader.iterator()) == self.committed[self.newest]
            provider.close()


class MachineContract(Contract):
    """The random walk as a test."""

    def test_random_walk(self, backend: Backend) -> None:
        frugal = backend.with_conf(stateStore__minDeltasForSnapshot="2")
        attributes: dict[str, Any] = {"backend": frugal, "partitions": count()}
        machine = type("Walk", (StoreMachine,), attributes)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=100,
                stateful_step_count=20,
                deadline=None,
                derandomize=True,
                database=None,
                # One failing walk, made short, is what helps; the other phases can take minutes.
                phases=(Phase.generate, Phase.shrink),
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
