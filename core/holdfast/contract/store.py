"""The store: one version of one partition's keyed state.

Keys and values are encoded rows: bytes, equal exactly when the rows are equal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias, Union

from holdfast.contract.capabilities import Capability, undeclared
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    import pyarrow as pa

    from holdfast.contract.metrics import StateStoreMetrics
    from holdfast.ids import StateStoreId

BytesLike: TypeAlias = Union[bytes, bytearray, memoryview]  # noqa: UP007 - evaluated at run time on 3.10
"""What callers may pass as a row. They may reuse a mutable buffer as soon as the call returns."""

Pair: TypeAlias = tuple[bytes, bytes]
"""A key and its value."""


def encoded_row(row: BytesLike, what: str) -> bytes:
    """An immutable copy of a caller's row; ``bytes`` is already one and is not copied again."""
    if type(row) is bytes:
        return row
    if row is None:
        raise InvalidRequest(f"{what} cannot be null")
    if not isinstance(row, (bytes, bytearray, memoryview)):
        raise InvalidRequest(f"{what} must be an encoded row (bytes), not {type(row).__name__}")
    return bytes(row)


def encoded_rows(rows: Sequence[BytesLike], what: str) -> list[bytes]:
    """Immutable copies; nothing is called per row in the ordinary case that all are ``bytes``."""
    if set(map(type, rows)) <= {bytes}:
        return list(rows)  # type: ignore[arg-type]
    return [encoded_row(row, what) for row in rows]


class ReadStateStore(ABC):
    """One version, to look at.

    What it shows does not change, whoever commits meanwhile. Use it in a ``with`` block, or call
    ``abort`` when done.
    """

    @property
    @abstractmethod
    def id(self) -> StateStoreId:
        """Which store this is."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The version that was opened."""

    @property
    def identity(self) -> str | None:
        """Which of the possible contents of its version this is, where the backend tells them apart.

        A batch that runs again makes another version of the same number. Of the version that was
        opened; after a commit, of the new one.
        """
        return None

    @property
    @abstractmethod
    def metrics(self) -> StateStoreMetrics:
        """Current metrics. After a commit those of the new version, after an abort those of the opened one."""

    @abstractmethod
    def get(self, key: BytesLike) -> bytes | None:
        """The value of ``key``, or ``None`` where there is none."""

    def get_many(self, keys: Sequence[BytesLike]) -> list[bytes | None]:
        """The values of ``keys``, in their order."""
        return [self.get(key) for key in keys]

    def get_array(self, keys: pa.Array) -> pa.Array:
        """The values of a binary or large_binary array of keys, in their order; null where there is none."""
        import pyarrow as pa

        return pa.array(self.get_many(keys.to_pylist()), pa.binary())

    @abstractmethod
    def iterator(self) -> Iterator[Pair]:
        """All pairs, in no particular order, as they are at the time of this call.

        The store may be updated while the iterator is in use; it does not show those updates. An
        iterator that outlives its store goes on correctly or raises; it never just ends early.
        """

    def get_range(self, start: BytesLike | None, end: BytesLike | None) -> Iterator[Pair]:
        """The pairs whose index column lies between those of ``start`` and ``end``, both included.

        ``start`` and ``end`` are rows of the key's schema of which only the index column counts
        (``key_index_ordinal`` of ``StateStoreProvider.init``); ``None`` leaves that side open.
        Pairs come in ascending order of the index column, nulls first.
        """
        raise undeclared(self, Capability.RANGE_SCAN)

    def prefix_scan(self, prefix: BytesLike, columns: int) -> Iterator[Pair]:
        """The pairs whose first ``columns`` key columns equal the row ``prefix``.

        ``prefix`` is a row of just those columns.
        """
        raise undeclared(self, Capability.PREFIX_SCAN)

    @abstractmethod
    def abort(self) -> None:
        """Let go of everything the store holds. May be called at any time, and again."""

    def __enter__(self) -> ReadStateStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


class StateStore(ReadStateStore):
    """One version, to make the next one from.

    It shows its own changes. Nobody else sees them before ``commit``, and two stores opened at the
    same version do not see each other's. Leaving its ``with`` block without a commit aborts.
    """

    @abstractmethod
    def put(self, key: BytesLike, value: BytesLike) -> None:
        """Set the value of ``key``. Neither may be ``None``."""

    def put_many(self, keys: Sequence[BytesLike], values: Sequence[BytesLike]) -> None:
        """Set many values; of a key that occurs twice the last one stays."""
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)

    def put_array(self, keys: pa.Array, values: pa.Array) -> None:
        """``put_many`` of two binary or large_binary arrays."""
        self.put_many(keys.to_pylist(), values.to_pylist())

    @abstractmethod
    def remove(self, key: BytesLike) -> None:
        """Remove ``key``; it need not be there."""

    def remove_many(self, keys: Sequence[BytesLike]) -> None:
        """Remove many keys."""
        for key in keys:
            self.remove(key)

    def remove_array(self, keys: pa.Array) -> None:
        """``remove_many`` of a binary or large_binary array."""
        self.remove_many(keys.to_pylist())

    @abstractmethod
    def commit(self) -> int:
        """Publish every change as version ``version + 1`` and return that number.

        After it returns, that version can be opened by any provider of the same store, with
        exactly these changes. A version of that number from before is replaced, and later ones
        that were built on it are gone: they belong to a future that did not happen.

        After ``CommitFailed`` the version exists whole or not at all, the store is still open, and
        committing again is safe. After ``Fenced`` nothing was published and the store is aborted.
        """

    @property
    @abstractmethod
    def has_committed(self) -> bool:
        """Whether ``commit`` has succeeded."""

    def __enter__(self) -> StateStore:
        return self
