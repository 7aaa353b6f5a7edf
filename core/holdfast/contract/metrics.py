"""What stores report about themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class MetricKind(Enum):
    """How values of a custom metric are added up and shown."""

    SUM = "count"
    SIZE = "bytes"
    TIMING = "milliseconds"


@dataclass(frozen=True, slots=True)
class StateStoreCustomMetric:
    """A measure that one backend reports beside the common ones."""

    name: str
    description: str
    kind: MetricKind = MetricKind.SUM


@dataclass(frozen=True, slots=True)
class StateStoreMetrics:
    """The measures of one store, or of several added up."""

    num_keys: int
    """Keys in the store, its own uncommitted changes included."""

    memory_used_bytes: int
    """Memory that the provider holds for this store, all loaded versions together."""

    custom_metrics: Mapping[StateStoreCustomMetric, int] = field(default_factory=dict)
    """Values of the provider's ``supported_custom_metrics``; each of them is present."""

    @staticmethod
    def combine(parts: Iterable[StateStoreMetrics]) -> StateStoreMetrics:
        """Add up the metrics of several stores of one operator."""
        num_keys = memory = 0
        custom: Counter[StateStoreCustomMetric] = Counter()
        for part in parts:
            num_keys += part.num_keys
            memory += part.memory_used_bytes
            custom.update(part.custom_metrics)
        return StateStoreMetrics(num_keys, memory, dict(custom))
