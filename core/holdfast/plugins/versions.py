"""Whether driver and executor run the same software."""

from __future__ import annotations

import functools
import importlib.metadata
from typing import TYPE_CHECKING

from holdfast.errors import VersionSkew
from holdfast.plugins.discovery import installed_plugins
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


@functools.cache
def installed_software() -> dict[str, str]:
    """Holdfast and every distribution with a plug-in for it, with their versions; loads none of them."""
    plugins = {plugin.distribution: plugin.version for plugin in installed_plugins()}
    return {**plugins, "holdfast": importlib.metadata.version("holdfast")}


def check_same_software(
    driver: Mapping[str, str], executor: Mapping[str, str], where: str, *, here: str = "the driver"
) -> None:
    """Raise ``VersionSkew`` naming every difference; ``where`` says which executor, ``here`` who compares.

    A plug-in that only one side has is no difference: whoever needs it will miss it by its name.
    """
    differences = [
        f"{name} is {driver[name]} on {here} and {executor[name]} on {where}"
        for name in sorted({*driver} & {*executor})
        if driver[name] != executor[name]
    ]
    if differences:
        raise VersionSkew(f"{'; '.join(differences)}; install the same versions on every machine of the cluster")
