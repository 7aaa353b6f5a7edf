"""Whether driver and executor run the same software."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

from holdfast.errors import VersionSkew
from holdfast.plugins.registry import ProviderRegistry, installed_providers

if TYPE_CHECKING:
    from collections.abc import Mapping


def software_versions(provider_class: str, registry: ProviderRegistry | None = None) -> dict[str, str]:
    """The distributions that matter for ``provider_class``, with their versions.

    Both ends of a connection compare theirs; state written by one must be what the other reads.
    """
    versions = {"holdfast": importlib.metadata.version("holdfast")}
    installed = (registry or installed_providers()).find(provider_class)
    if installed is not None:
        versions[installed.plugin.distribution] = installed.plugin.version
    return versions


def check_same_software(driver: Mapping[str, str], executor: Mapping[str, str], where: str) -> None:
    """Raise ``VersionSkew`` naming every difference; ``where`` says which executor."""
    differences = [
        f"{name} is {driver.get(name, 'not installed')} on the driver"
        f" and {executor.get(name, 'not installed')} on {where}"
        for name in sorted({*driver, *executor})
        if driver.get(name) != executor.get(name)
    ]
    if differences:
        raise VersionSkew(f"{'; '.join(differences)}; install the same versions on every machine of the cluster")
