"""The configuration of state stores, under Spark's own keys and with Spark's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from holdfast.settings import Seconds, Settings, refuse_unknown, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_STORE_PREFIX: Final = "spark.sql.streaming.stateStore."
HOLDFAST_PREFIX: Final = "spark.holdfast."
HOLDFAST_PROVIDER_CLASS: Final = "spark.holdfast.providerClass"

HOLDFAST_OWN_PREFIXES: Final = ("spark.holdfast.host.", "spark.holdfast.coordinator.", "spark.holdfast.operator.")
"""Where Holdfast's own settings are; everything else below ``spark.holdfast.`` with a dot is a backend's."""

# Spark's default, by Spark's name. Whoever is installed and claims that name serves it, so the
# core need not know any backend.
DEFAULT_PROVIDER_CLASS: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@dataclass(frozen=True, kw_only=True)
class StateStoreConf(Settings):
    """What every store is configured with. Build it with ``StateStoreConf.parse(mapping)``."""

    prefix: ClassVar[str] = STATE_STORE_PREFIX

    provider_class: str = setting(
        DEFAULT_PROVIDER_CLASS,
        "The backend: a short name, a Python class name, or Spark's name of a provider that a backend stands in for.",
    )
    min_deltas_for_snapshot: int = setting(10, "Deltas in a chain before maintenance writes a snapshot.", minimum=1)
    min_versions_to_retain: int = setting(
        100,
        "Versions that stay readable before maintenance removes them.",
        minimum=1,
        key="spark.sql.streaming.minBatchesToRetain",
    )
    max_versions_to_retain_in_memory: int = setting(
        2,
        "Versions that a backend keeps in memory.",
        minimum=0,
        key="spark.sql.streaming.maxBatchesToRetainInMemory",
    )
    maintenance_interval: Seconds = setting(
        Seconds(60.0), "Time between two runs of maintenance on an executor.", minimum=0.001
    )
    compression_codec: Literal["lz4", "zstd"] = setting(
        "lz4", "Compression of delta and snapshot files.", key=STATE_STORE_PREFIX + "compression.codec"
    )

    confs: Mapping[str, str] = field(default_factory=dict)
    """Every ``spark.sql.streaming.stateStore.*`` key as it was given, Spark's own ones included."""

    backend_confs: Mapping[str, str] = field(default_factory=dict)
    """Every ``spark.holdfast.*`` key as it was given; backends read their settings from here."""

    @classmethod
    def parse(cls, conf: Mapping[str, str]) -> StateStoreConf:
        """Read a Spark configuration.

        ``spark.holdfast.providerClass`` goes before Spark's own key, so that a session can keep
        Spark's for its JVM operators. Keys of Spark's that Holdfast does not use are captured in
        ``confs`` and otherwise left alone.
        """
        values = {item.field: item.parse(conf[item.key]) for item in cls.declared() if item.key in conf}
        backend_confs = {key: value for key, value in conf.items() if key.startswith(HOLDFAST_PREFIX)}
        # Keys with a further dot belong to backends, who check their own.
        own = (key for key in backend_confs if "." not in key[len(HOLDFAST_PREFIX) :])
        refuse_unknown(own, [HOLDFAST_PROVIDER_CLASS])
        if HOLDFAST_PROVIDER_CLASS in backend_confs:
            values["provider_class"] = backend_confs[HOLDFAST_PROVIDER_CLASS]
        return cls(
            **values,
            confs={key: value for key, value in conf.items() if key.startswith(STATE_STORE_PREFIX)},
            backend_confs=backend_confs,
        )
