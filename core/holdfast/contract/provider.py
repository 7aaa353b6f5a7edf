"""The provider: makes the stores of one partition, version by version."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.contract.capabilities import Capability, undeclared
from holdfast.contract.filesystems import FilesystemAdapters
from holdfast.contract.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from holdfast.conf import StateStoreConf
    from holdfast.contract.metrics import StateStoreCustomMetric
    from holdfast.contract.store import ReadStateStore, StateStore
    from holdfast.ids import StateStoreId
    from holdfast.settings import Settings


class CommitGuard(ABC):
    """Says whether an attempt may still publish.

    Two attempts at one version can be alive at once: a task that Spark gave up on does not know
    it. The provider asks its guard at the last moment before a version becomes visible.
    """

    @abstractmethod
    def before_publish(self, store: StateStore) -> None:
        """Return if ``store`` may publish ``store.version + 1`` now, else raise ``Fenced``.

        ``store`` is the very object that ``get_store`` returned. No answer is no permission. It is
        asked once per commit, and again for retries and before a version that is there is replaced.
        """


class Unguarded(CommitGuard):
    """Lets everything pass: for tools and tests where there is only one writer."""

    def before_publish(self, store: StateStore) -> None:
        """Return."""


class StateStoreProvider(ABC):
    """Makes the stores of one partition of one operator.

    It is created without arguments, then ``init`` is called once. One instance serves all batches
    of a run on its executor; calls may come from several threads. Version 0 is the empty state and
    always there; batch N opens version N and commits version N + 1.

    Required of every provider: the newest version and the one before it can be opened, any number
    of times, for reading and for writing.
    """

    capabilities: ClassVar[frozenset[Capability]]
    """What this provider can do. Exactly one of VOLATILE, LOG and EXTERNAL is among them."""

    settings: ClassVar[type[Settings] | None] = None
    """The settings this backend declares, if any."""

    fault_points: ClassVar[tuple[str, ...]] = ()
    """Names of the ``fault_point`` calls that every commit with changes passes; the kit kills at each."""

    observer: Observer = Observer()
    """Told of what happens; set before ``init`` by whoever creates the provider."""

    filesystem_adapters: FilesystemAdapters = FilesystemAdapters()
    """How to write on filesystems that plug-ins know better; set before ``init``, too."""

    @abstractmethod
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
        """Take the place of the constructor; reads nothing that a missing version would make fail.

        ``key_index_ordinal`` is the key column that ``get_range`` goes by. ``fs_options`` are
        fsspec's options for the checkpoint's filesystem.
        """

    @property
    @abstractmethod
    def store_id(self) -> StateStoreId:
        """The id given to ``init``."""

    @abstractmethod
    def get_store(self, version: int, identity: str | None = None) -> StateStore:
        """Open ``version`` to make ``version + 1`` from it.

        ``identity`` is what the caller knows ``version`` to be (``StateStore.identity`` after the
        commit that made it); ``None`` means whatever is stored. A provider that has that very
        version at hand need not look further, and one that tells versions of one number apart
        raises ``CorruptState`` where another one is stored.

        A version that is not there in full is ``MissingVersion``, never an empty store.
        """

    @abstractmethod
    def get_read_store(self, version: int, identity: str | None = None) -> ReadStateStore:
        """Open ``version`` to look at it; ``identity`` as in ``get_store``."""

    def start_at(self, version: int) -> None:
        """Let a store without any state begin empty at ``version``, for a query that is already at that batch.

        After it returns, ``version`` can be opened and is empty. Calling it again is harmless. A
        store that has other state is ``InvalidRequest``, and stays as it is.
        """
        raise undeclared(self, Capability.LATE_START)

    def do_maintenance(self) -> None:
        """Background work: snapshots, compaction, removing what nobody can ask for any more.

        Called now and then from a thread of its own, beside open stores, which it does not
        disturb. What it removes no version of the last ``minBatchesToRetain`` needs.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. Called once; committed versions stay."""

    @property
    def supported_custom_metrics(self) -> Sequence[StateStoreCustomMetric]:
        """The custom metrics that ``StateStore.metrics`` of this provider's stores has values for."""
        return ()
