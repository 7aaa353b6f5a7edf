"""Fixtures and steps that all parts of the kit share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.conformance.sample_rows import codec, key, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.conformance.backend import Backend
    from holdfast.contract.provider import StateStoreProvider
    from holdfast.contract.store import ReadStateStore

    OpenProvider = Callable[..., StateStoreProvider]

__all__ = ["Contract", "codec", "commit", "contents", "key", "read", "value"]


def contents(store: ReadStateStore) -> dict[bytes, bytes]:
    """Everything a store shows; a key that comes twice is an error."""
    pairs = list(store.iterator())
    assert len({k for k, _ in pairs}) == len(pairs), "the iterator shows a key more than once"
    return dict(pairs)


def read(provider: StateStoreProvider, version: int) -> dict[bytes, bytes]:
    """Everything in ``version``."""
    with provider.get_read_store(version) as store:
        return contents(store)


def commit(
    provider: StateStoreProvider, version: int, puts: Mapping[bytes, bytes], removes: tuple[bytes, ...] = ()
) -> int:
    """Make one version."""
    with provider.get_store(version) as store:
        store.put_many(list(puts), list(puts.values()))
        store.remove_many(removes)
        return store.commit()


class Contract:
    """Base of the parts of the kit."""

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend under test: override this fixture."""
        raise NotImplementedError(
            f"{type(self).__name__} must define a fixture `backend` that returns a holdfast.conformance.Backend"
        )

    @pytest.fixture
    def open_provider(self, backend: Backend) -> Iterator[OpenProvider]:
        """Open providers of the backend; every one is closed after the test.

        Each call is a new provider of the same store, which sees only what the others published.
        """
        opened: list[StateStoreProvider] = []

        def open_(*args: Any, on: Backend = backend, **kwargs: Any) -> StateStoreProvider:
            provider = on.open(*args, **kwargs)
            opened.append(provider)
            return provider

        yield open_
        for provider in reversed(opened):
            provider.close()

    @pytest.fixture
    def provider(self, open_provider: OpenProvider) -> StateStoreProvider:
        """A provider of an empty store."""
        return open_provider()
