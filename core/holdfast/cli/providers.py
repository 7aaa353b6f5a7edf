"""What ``holdfast providers`` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from holdfast.plugins.registry import ProviderRegistry


def describe(registry: ProviderRegistry) -> dict[str, Any]:
    """Everything that is installed, as plain data."""
    return {
        "providers": [
            {
                "name": found.spec.name,
                "class": found.class_name,
                "aliases": list(found.spec.aliases),
                "distribution": found.plugin.distribution,
                "version": found.plugin.version,
                "capabilities": sorted(capability.name for capability in found.spec.provider.capabilities),
                "settings": [
                    {"key": item.key, "accepts": item.accepts, "default": item.shown_default, "help": item.help}
                    for item in (found.spec.provider.settings.declared() if found.spec.provider.settings else ())
                ],
            }
            for found in sorted(registry.providers, key=lambda found: (found.spec.name, found.class_name))
        ],
        "problems": [
            {
                "name": problem.name,
                "distribution": problem.plugin.distribution,
                "version": problem.plugin.version,
                "kind": type(problem.error).__name__,
                "error": str(problem.error),
            }
            for problem in registry.problems
        ],
    }


def as_text(registry: ProviderRegistry) -> str:
    """The same for a person to read: blocks, because class names and keys are too long for a table."""
    blocks = []
    for provider in describe(registry)["providers"]:
        lines = [
            click.style(provider["name"], bold=True),
            f"  class         {provider['class']}",
            *(f"  stands for    {alias}" for alias in provider["aliases"]),
            f"  installed by  {provider['distribution']} {provider['version']}",
            f"  capabilities  {', '.join(provider['capabilities'])}",
            f"  settings      {'' if provider['settings'] else 'none'}".rstrip(),
        ]
        for item in provider["settings"]:
            lines += [f"    {item['key']} = {item['default']}", f"      {item['help']} Accepts {item['accepts']}."]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) or "no provider is installed"
