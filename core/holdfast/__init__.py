"""Holdfast: the state-store layer of Spark Structured Streaming, in Python."""

import importlib as _importlib
import typing as _typing

from holdfast import errors
from holdfast.conf import StateStoreConf
from holdfast.contract.buffered import BufferedStateStore, Changes, Published, StateView
from holdfast.contract.capabilities import Capability
from holdfast.contract.faults import fault_point
from holdfast.contract.filesystems import FilesystemAdapter
from holdfast.contract.metrics import MetricKind, StateStoreCustomMetric, StateStoreMetrics
from holdfast.contract.provider import CommitGuard, StateStoreProvider, Unguarded
from holdfast.contract.store import BytesLike, Pair, ReadStateStore, StateStore
from holdfast.contract.versioned import VersionedProvider
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.plugins.hookspecs import ProviderSpec, hookimpl
from holdfast.plugins.registry import create_and_init
from holdfast.settings import ByteSize, Seconds, Settings, setting

if _typing.TYPE_CHECKING:
    from holdfast.checkpoint.log import Piece
    from holdfast.checkpoint.provider import CheckpointedProvider, StateMap
    from holdfast.groups.aggregates import avg, count, first, last, max, min, sum  # noqa: A004 - Spark's names
    from holdfast.rows import KeyIndex
    from holdfast.spark.api import group_by, map_partitions_with_state_store, rebalance, state_operators

__all__ = [
    "BufferedStateStore",
    "ByteSize",
    "BytesLike",
    "Capability",
    "Changes",
    "CheckpointedProvider",
    "CommitGuard",
    "FilesystemAdapter",
    "KeyIndex",
    "MetricKind",
    "Pair",
    "Piece",
    "ProviderSpec",
    "Published",
    "ReadStateStore",
    "Seconds",
    "Settings",
    "StateMap",
    "StateStore",
    "StateStoreConf",
    "StateStoreCustomMetric",
    "StateStoreId",
    "StateStoreMetrics",
    "StateStoreProvider",
    "StateStoreProviderId",
    "StateView",
    "Unguarded",
    "VersionedProvider",
    "avg",
    "count",
    "create_and_init",
    "errors",
    "fault_point",
    "first",
    "group_by",
    "hookimpl",
    "last",
    "map_partitions_with_state_store",
    "max",
    "min",
    "rebalance",
    "setting",
    "state_operators",
    "sum",
]

# These bring Arrow, fsspec and lz4 with them, which `import holdfast` alone shall not cost.
_LOADED_WHEN_ASKED_FOR = {
    **dict.fromkeys(("avg", "count", "first", "last", "max", "min", "sum"), "holdfast.groups.aggregates"),
    **dict.fromkeys(
        ("group_by", "map_partitions_with_state_store", "rebalance", "state_operators"), "holdfast.spark.api"
    ),
    "CheckpointedProvider": "holdfast.checkpoint.provider",
    "KeyIndex": "holdfast.rows",
    "Piece": "holdfast.checkpoint.log",
    "StateMap": "holdfast.checkpoint.provider",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _LOADED_WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    thing = globals()[name] = getattr(_importlib.import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
    return thing
