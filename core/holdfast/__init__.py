"""Holdfast: the state-store layer of Spark Structured Streaming, in Python."""

from holdfast import errors
from holdfast.conf import StateStoreConf
from holdfast.contract.buffered import Changes, StateView
from holdfast.contract.capabilities import Capability
from holdfast.contract.faults import fault_point
from holdfast.contract.metrics import MetricKind, StateStoreCustomMetric, StateStoreMetrics
from holdfast.contract.provider import CommitGuard, StateStoreProvider, Unguarded
from holdfast.contract.store import BytesLike, Pair, ReadStateStore, StateStore
from holdfast.contract.versioned import VersionedProvider
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.plugins.hookspecs import ProviderSpec, hookimpl
from holdfast.plugins.registry import create_and_init
from holdfast.settings import ByteSize, Seconds, Settings, setting

__all__ = [
    "ByteSize",
    "BytesLike",
    "Capability",
    "Changes",
    "CommitGuard",
    "MetricKind",
    "Pair",
    "ProviderSpec",
    "ReadStateStore",
    "Seconds",
    "Settings",
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
    "create_and_init",
    "errors",
    "fault_point",
    "hookimpl",
    "setting",
]
