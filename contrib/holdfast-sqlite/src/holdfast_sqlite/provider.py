"""The provider: SQLite databases as state stores."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from holdfast import (
    Capability,
    MetricKind,
    Published,
    Seconds,
    Settings,
    StateStoreCustomMetric,
    StateView,
    VersionedProvider,
    setting,
)
from holdfast.errors import InvalidSetting
from holdfast_sqlite.database import Database, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast import Changes, Pair, StateStoreId

DATABASE_SIZE = StateStoreCustomMetric(
    "sqliteDatabaseBytes", "size of the database file and its journal", MetricKind.SIZE
)


@dataclass(frozen=True, kw_only=True)
class SqliteSettings(Settings):
    """The settings of this backend."""

    prefix: ClassVar[str] = "spark.holdfast.sqlite."

    directory: str | None = setting(None, "Folder for the databases, if not in the checkpoint itself.")
    busy_timeout: Seconds = setting(Seconds(30.0), "How long a commit waits for another one on the same store.")
    synchronous: Literal["full", "normal"] = setting(
        "full", "Whether commits survive a power failure (full) or only a crash of the process (normal)."
    )


class _View(StateView):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.identity: str = snapshot.identity

    def get(self, key: bytes) -> bytes | None:
        return self._snapshot.get_many([key]).get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._snapshot.get_many(list(keys))
        return [found.get(key) for key in keys]

    def entries(self) -> Iterator[Pair]:
        return self._snapshot.entries()

    def num_keys(self) -> int:
        return self._snapshot.num_keys

    def close(self) -> None:
        self._snapshot.close()


class SqliteStateStoreProvider(VersionedProvider):
    """Keeps each store in a SQLite database of its own, old versions included.

    SQLite's transactions make a commit all or nothing, and its write-ahead log lets readers go on
    beside a writer. All executors must see the folder: it suits one machine, or a local test.
    """

    capabilities: ClassVar = frozenset(
        {Capability.EXTERNAL, Capability.TIME_TRAVEL, Capability.RANGE_SCAN, Capability.PREFIX_SCAN}
    )
    settings: ClassVar = SqliteSettings

    def open(self) -> None:
        settings = SqliteSettings.parse(self.conf.backend_confs)
        self._database = Database(
            database_path(self.store_id, settings.directory),
            timeout=settings.busy_timeout,
            synchronous=settings.synchronous,
        )
        self._database.create()

    @property
    def location(self) -> str:
        return str(self._database.path)

    def open_view(self, version: int) -> _View:
        return _View(Snapshot(self._database, version))

    def publish(self, base: int, view: StateView, changes: Changes, ask: Callable[[], None]) -> Published:
        before = view.get_many(list(changes))
        # A removal of what was not there needs no entry.
        entries = [
            (key, new) for (key, new), old in zip(changes.items(), before, strict=True) if (new, old) != (None, None)
        ]
        added = sum((new is not None) - (old is not None) for new, old in zip(changes.values(), before, strict=True))
        num_keys = view.num_keys() + added
        return Published(num_keys, self._database.publish(base, view.identity or "", entries, num_keys, ask))

    def do_maintenance(self) -> None:
        self._database.forget_old_versions(self.conf.min_versions_to_retain)

    @property
    def supported_custom_metrics(self) -> Sequence[StateStoreCustomMetric]:
        return (DATABASE_SIZE,)

    def custom_metric_values(self) -> Mapping[StateStoreCustomMetric, int]:
        path = self._database.path
        return {DATABASE_SIZE: sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))}


def database_path(store: StateStoreId, directory: str | None) -> Path:
    """Where the database of ``store`` is: in the checkpoint, or in ``directory`` apart from other queries' ones.

    Every store has a folder of its own, whatever the stores are called.
    """
    if directory is not None:
        root = Path(directory, hashlib.sha256(store.checkpoint_root.encode()).hexdigest()[:16])
    else:
        # Hadoop does not escape anything in a path, so what follows "file:" is taken as it is.
        match = re.fullmatch(r"file:(?://(?:localhost)?(?=/))?(/.*)", store.checkpoint_root, re.DOTALL)
        if match is None and re.match(r"\w[\w+.-]+:", store.checkpoint_root):
            scheme = store.checkpoint_root.partition(":")[0]
            raise InvalidSetting(
                f"SQLite needs a folder on this machine, and the checkpoint is at {scheme}:;"
                f" set {SqliteSettings.prefix}directory to a folder that every executor sees"
            )
        root = Path(match[1] if match else store.checkpoint_root)
    return root / str(store.operator_id) / str(store.partition_id) / store.store_name / "state.sqlite"
