"""Finding the installed plug-ins. One that is broken never keeps the others from working."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pluggy

from holdfast.errors import BrokenPlugin, HoldfastError
from holdfast.plugins import hookspecs
from holdfast.plugins.hookspecs import PROJECT, ProviderSpec
from holdfast.plugins.validation import check_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugin:
    """An installed entry point of the group ``holdfast``, or an object that stands for one."""

    name: str
    target: object
    """The module or object with the hooks, or an ``importlib.metadata.EntryPoint`` that loads it."""

    distribution: str = "unknown distribution"
    version: str = "?"

    @property
    def origin(self) -> str:
        """Who brought it, for messages."""
        return f"{self.distribution} {self.version}"

    @property
    def module(self) -> str:
        """The module it is loaded from."""
        if isinstance(self.target, importlib.metadata.EntryPoint):
            return self.target.module
        return getattr(self.target, "__name__", type(self.target).__module__)


@dataclass(frozen=True)
class InstalledProvider:
    """A provider and the distribution it came with."""

    spec: ProviderSpec
    plugin: Plugin

    @property
    def class_name(self) -> str:
        """Dotted name of the class, by the package that exports it where there is one."""
        return min(self._class_names(), key=len)

    def answers_to(self, name: str) -> bool:
        """Whether ``name`` in ``providerClass`` means this provider."""
        return name == self.spec.name or name in self.spec.aliases or name in self._class_names()

    def _class_names(self) -> list[str]:
        provider = self.spec.provider
        package = provider.__module__.partition(".")[0]
        names = [f"{provider.__module__}.{provider.__qualname__}"]
        if getattr(sys.modules.get(package), provider.__qualname__, None) is provider:
            names.append(f"{package}.{provider.__qualname__}")
        return names


@dataclass(frozen=True)
class Problem:
    """A plug-in, or one provider of it, that cannot be used."""

    plugin: Plugin
    name: str
    """The provider's short name if it got as far as that, else the entry point's."""

    error: HoldfastError


@dataclass(frozen=True)
class Discovery:
    """Everything that was found."""

    manager: pluggy.PluginManager
    providers: tuple[InstalledProvider, ...]
    problems: tuple[Problem, ...]


def installed_plugins() -> Iterator[Plugin]:
    """The entry points of the group, each once, in a fixed order."""
    seen = set()
    found = importlib.metadata.entry_points(group=PROJECT)
    for entry in sorted(found, key=lambda e: (e.name, e.dist.name if e.dist else "", e.value)):
        distribution, version = (entry.dist.name, entry.dist.version) if entry.dist else ("unknown", "?")
        # A source tree on the path beside its own installation shows every entry point twice.
        if (entry.name, entry.value, distribution) not in seen:
            seen.add((entry.name, entry.value, distribution))
            yield Plugin(entry.name, entry, distribution, version)


def discover(plugins: Iterable[Plugin]) -> Discovery:
    """Load ``plugins`` and ask each for its providers."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    providers: list[InstalledProvider] = []
    problems: list[Problem] = []
    for plugin in plugins:
        try:
            specs = _register(manager, plugin)
        except HoldfastError as error:
            problems.append(Problem(plugin, plugin.name, error))
            continue
        for spec in specs:
            try:
                check_spec(spec)
            except HoldfastError as error:
                problems.append(Problem(plugin, str(getattr(spec, "name", plugin.name)), error))
            else:
                providers.append(InstalledProvider(spec, plugin))
    for problem in problems:
        log.warning("Plug-in %s of %s cannot be used: %s", problem.name, problem.plugin.origin, problem.error)
    return Discovery(manager, tuple(providers), tuple(problems))


def _register(manager: pluggy.PluginManager, plugin: Plugin) -> list[ProviderSpec]:
    where = f"plug-in {plugin.name!r} of {plugin.origin}"
    try:
        target = plugin.target.load() if isinstance(plugin.target, importlib.metadata.EntryPoint) else plugin.target
    except (Exception, SystemExit) as error:
        raise BrokenPlugin(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    # pluggy keeps one of two plug-ins with the same name, so the name says where each came from.
    name = f"{plugin.distribution}:{plugin.name}:{plugin.module}"
    try:
        manager.register(target, name=name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        if manager.has_plugin(name):
            manager.unregister(name=name)
        reason = str(error).strip().replace("\n", " ")
        raise BrokenPlugin(f"{where} misuses the hooks: {reason}; the hooks are {', '.join(_hook_names())}") from error
    callers = manager.get_hookcallers(target) or []
    if not callers:
        manager.unregister(name=name)
        raise BrokenPlugin(f"{where} has no hook: mark its functions with @holdfast.hookimpl")
    specs: list[ProviderSpec] = []
    for caller in callers:
        for implementation in caller.get_hookimpls():
            if caller.name == "holdfast_providers" and implementation.plugin is target:
                try:
                    specs.extend(cast("Iterable[ProviderSpec]", implementation.function()))
                except (Exception, SystemExit) as error:
                    manager.unregister(name=name)
                    raise BrokenPlugin(
                        f"{where} failed in holdfast_providers: {type(error).__name__}: {error}"
                    ) from error
    return specs


def _hook_names() -> list[str]:
    return sorted(name for name in vars(hookspecs) if name.startswith(f"{PROJECT}_"))
