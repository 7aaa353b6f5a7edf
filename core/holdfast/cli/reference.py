"""The reference of settings, made from their declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.conf import HOLDFAST_PROVIDER_CLASS, StateStoreConf
from holdfast.driver.snapshot_lag import SnapshotLagSettings
from holdfast.executor.settings import HostSettings
from holdfast.spark.settings import CoordinatorSettings, OperatorSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.plugins.registry import ProviderRegistry
    from holdfast.settings import DeclaredSetting

_HEADER = "| key | accepts | default | meaning |\n| --- | --- | --- | --- |\n"


def settings_reference(registry: ProviderRegistry) -> str:
    """All settings as Markdown: the core's, then those of each backend that has any."""
    parts = [
        "## All stores\n\n",
        _table(StateStoreConf.declared()),
        f"\n`{HOLDFAST_PROVIDER_CLASS}`, where it is set, goes before Spark's `providerClass`: a session can keep\n"
        "Spark's key for its JVM operators.\n",
        f"\n## Operators\n\n{_table(OperatorSettings.declared())}",
        f"\n## The state host\n\n{_table(HostSettings.declared())}",
        f"\n## The coordinator\n\n{_table(_coordinator_settings())}",
    ]
    for found in sorted(registry.providers, key=lambda found: found.spec.name):
        declared = list(found.spec.provider.settings.declared()) if found.spec.provider.settings else []
        if declared:
            parts.append(f"\n## Backend `{found.spec.name}` ({found.plugin.distribution})\n\n{_table(declared)}")
    return "".join(parts)


def _coordinator_settings() -> Iterator[DeclaredSetting]:
    yield from CoordinatorSettings.declared()
    shown = {item.key for item in StateStoreConf.declared()}
    yield from (item for item in SnapshotLagSettings.declared() if item.key not in shown)


def _table(settings: Iterable[DeclaredSetting]) -> str:
    rows = (f"| `{item.key}` | {item.accepts} | `{item.shown_default}` | {item.help} |\n" for item in settings)
    return _HEADER + "".join(rows)
