"""The base for a backend that keeps versions by itself: show one, publish the next."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.contract.buffered import BufferedReadStore, BufferedStateStore, Changes, Published, StateView
from holdfast.contract.metrics import StateStoreMetrics
from holdfast.contract.provider import CommitGuard, StateStoreProvider
from holdfast.errors import CorruptState, InvalidRequest
from holdfast.ids import check_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from holdfast.conf import StateStoreConf
    from holdfast.contract.metrics import StateStoreCustomMetric
    from holdfast.ids import StateStoreId


class VersionedProvider(StateStoreProvider):
    """Does everything of the contract but the storage.

    A backend writes ``open_view`` and ``publish`` (and ``open`` and ``close`` if it holds anything);
    buffering, isolation, the guard, the states of a store and scans come from here.
    """

    fault_points: ClassVar[tuple[str, ...]] = ("commit.before_ask", "commit.before_publish", "commit.after_publish")

    store_class: ClassVar[type[BufferedStateStore]] = BufferedStateStore
    """What ``get_store`` returns; a backend may add to it."""

    key_schema: pa.Schema
    value_schema: pa.Schema
    key_index_ordinal: int | None
    conf: StateStoreConf
    fs_options: Mapping[str, Any]
    guard: CommitGuard

    def init(
        self,
        store_id: StateStoreId,
        key_schema: pa.Schema,
        value_schema: pa.Schema,
        key_index_ordinal: int | None,
        conf: StateStoreConf,
        fs_options: Mapping[str, Any],
        guard: CommitGuard,
    ) -> None:
        if key_index_ordinal is not None and key_index_ordinal not in range(len(key_schema)):
            raise InvalidRequest(f"key_index_ordinal is {key_index_ordinal}, but the key has {len(key_schema)} columns")
        self._store_id = store_id
        self.key_schema = key_schema
        self.value_schema = value_schema
        self.key_index_ordinal = key_index_ordinal
        self.conf = conf
        self.fs_options = fs_options
        self.guard = guard
        self.open()

    @property
    def store_id(self) -> StateStoreId:
        return self._store_id

    @property
    def location(self) -> str:
        """Where the state is, for messages and logs; override it if it is not in the checkpoint."""
        return self._store_id.store_checkpoint_location()

    def open(self) -> None:
        """Set up what the backend needs; called at the end of ``init``."""

    @abstractmethod
    def open_view(self, version: int) -> StateView:
        """Show ``version``, or raise ``MissingVersion``. Version 0 is empty and always there."""

    def open_known(self, version: int, identity: str) -> StateView:
        """``open_view`` of a version that the caller knows; override it where knowing saves looking."""
        return self.open_view(version)

    @abstractmethod
    def publish(self, base: int, view: StateView, changes: Changes, ask: Callable[[], None]) -> int | Published:
        """Make version ``base + 1`` from ``view`` and ``changes``, durable and all at once.

        Call ``ask`` immediately before the version becomes visible: it raises when this attempt
        must not publish, and then nothing may stay behind. An existing ``base + 1`` is replaced
        and anything above it discarded. Return the number of keys in the new version; where views
        have an identity, return it too, as ``Published``.
        """

    def get_store(self, version: int, identity: str | None = None) -> BufferedStateStore:
        return self.store_class(self, version, self._view(version, identity))

    def get_read_store(self, version: int, identity: str | None = None) -> BufferedReadStore:
        return BufferedReadStore(self, version, self._view(version, identity))

    def _view(self, version: int, identity: str | None = None) -> StateView:
        check_number("version", version)
        if identity is None:
            return self.open_view(version)
        view = self.open_known(version, identity)
        if view.identity not in (None, identity):
            view.close()
            raise CorruptState(
                f"version {version} of {self.location} is stored as {view.identity}, but {identity} was committed: a"
                " writer that had been given up replaced it later; `holdfast rollback` can take the stopped query back"
                " to a batch before it"
            )
        return view

    def close(self) -> None:
        """Nothing to let go of, unless the backend says otherwise."""

    def memory_used_bytes(self) -> int:
        """Memory held for this store, all loaded versions together."""
        return 0

    def custom_metric_values(self) -> Mapping[StateStoreCustomMetric, int]:
        """Current values of ``supported_custom_metrics``."""
        return {}

    def metrics_of(self, num_keys: int) -> StateStoreMetrics:
        """The metrics of one of this provider's stores."""
        return StateStoreMetrics(num_keys, self.memory_used_bytes(), self.custom_metric_values())
