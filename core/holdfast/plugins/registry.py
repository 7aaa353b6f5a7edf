"""Choosing a provider by name, and making one."""

from __future__ import annotations

import difflib
import functools
import importlib
import logging
from typing import TYPE_CHECKING, Any

from holdfast.conf import HOLDFAST_OWN_PREFIXES, HOLDFAST_PROVIDER_CLASS
from holdfast.errors import BrokenPlugin, DuplicateProvider, InvalidProvider, ProviderNotFound
from holdfast.plugins.adapters import HookAdapters
from holdfast.plugins.discovery import Discovery, InstalledProvider, Problem, discover, installed_plugins
from holdfast.plugins.observers import HookObserver
from holdfast.plugins.validation import check_provider_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.conf import StateStoreConf
    from holdfast.contract.provider import CommitGuard, StateStoreProvider
    from holdfast.ids import StateStoreId
    from holdfast.plugins.discovery import Plugin

log = logging.getLogger(__name__)


class ProviderRegistry:
    """The providers of a set of plug-ins."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self._found: Discovery = discover(plugins)
        self.observer = HookObserver(self._found.manager.hook)
        """Tells the plug-ins what happens to stores."""
        self.filesystem_adapters = HookAdapters(self._found.manager.hook)
        """Asks the plug-ins how to write on a filesystem."""

    @property
    def providers(self) -> tuple[InstalledProvider, ...]:
        """Every usable provider, names that clash included."""
        return self._found.providers

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every plug-in that cannot be used, and every name that is claimed twice."""
        clashes = []
        for name in sorted({n for p in self.providers for n in (p.spec.name, *p.spec.aliases)}):
            claims = self._claims(name)
            if len(claims) > 1:
                clashes.append(Problem(claims[0].plugin, name, _duplicate(name, claims)))
        return (*self._found.problems, *clashes)

    def resolve(self, name: str) -> type[StateStoreProvider]:
        """The class that ``providerClass = name`` means.

        A short name, a name that a plug-in stands in for, or a dotted class name, registered or
        merely importable.
        """
        installed = self.find(name)
        if installed is not None:
            return installed.spec.provider
        for problem in self._found.problems:
            if name == problem.name or name.split(".")[0] == problem.plugin.module.split(".")[0]:
                raise problem.error
        module_name, _, class_name = name.rpartition(".")
        if not module_name:
            raise self._not_found(name)
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and (module_name + ".").startswith(error.name + "."):
                raise self._not_found(name, f"there is no module {error.name} on the import path") from None
            raise BrokenPlugin(f"providerClass {name}: importing {module_name} failed: {error}") from error
        except (Exception, SystemExit) as error:
            raise BrokenPlugin(
                f"providerClass {name}: importing {module_name} failed: {type(error).__name__}: {error}"
            ) from error
        if not hasattr(module, class_name):
            raise self._not_found(name, f"module {module_name} has no {class_name}")
        return check_provider_class(getattr(module, class_name))

    def warn_of_foreign_settings(self, conf: StateStoreConf, chosen: type[StateStoreProvider]) -> None:
        """Log the settings that no installed backend reads: misspelt, or of a backend that is not installed."""
        classes = [chosen, *(provider.spec.provider for provider in self.providers)]
        prefixes = tuple(settings.prefix for settings in (cls.settings for cls in classes) if settings is not None)
        prefixes += HOLDFAST_OWN_PREFIXES
        for key in conf.backend_confs:
            if key != HOLDFAST_PROVIDER_CLASS and not key.startswith(prefixes):
                log.warning("Setting %s is not used: no installed backend has settings of that name", key)

    def find(self, name: str) -> InstalledProvider | None:
        """The registered provider that answers to ``name``, if there is one; two are an error."""
        claims = self._claims(name)
        if len(claims) > 1:
            raise _duplicate(name, claims)
        return claims[0] if claims else None

    def _claims(self, name: str) -> list[InstalledProvider]:
        return [provider for provider in self.providers if provider.answers_to(name)]

    def _not_found(self, name: str, why: str | None = None) -> ProviderNotFound:
        installed = sorted(provider.spec.name for provider in self.providers)
        if name.startswith("org.apache.spark."):
            why = (
                "that is a class of Spark's JVM, and no installed package stands in for it;"
                f" if it is for Spark's own operators, leave it and set {HOLDFAST_PROVIDER_CLASS} beside it"
            )
        candidates = {n for p in self.providers for n in (p.spec.name, p.class_name, *p.spec.aliases)}
        nearest = difflib.get_close_matches(name, sorted(candidates), n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        return ProviderNotFound(
            f"no state store provider {name!r}{f' ({why})' if why else ''};"
            f" installed: {', '.join(installed) or 'none'}{hint}"
        )


def _duplicate(name: str, claims: list[InstalledProvider]) -> DuplicateProvider:
    who = " and ".join(f"{claim.plugin.origin} ({claim.class_name})" for claim in claims)
    return DuplicateProvider(f"provider {name!r} is offered by {who}; uninstall one, or choose by the full class name")


@functools.cache
def installed_providers() -> ProviderRegistry:
    """The registry of what is installed; plug-ins are loaded on the first call."""
    return ProviderRegistry(installed_plugins())


def create_and_init(
    store_id: StateStoreId,
    key_schema: Any,
    value_schema: Any,
    key_index_ordinal: int | None,
    conf: StateStoreConf,
    fs_options: Mapping[str, Any],
    guard: CommitGuard,
    *,
    registry: ProviderRegistry | None = None,
) -> StateStoreProvider:
    """Make the provider that ``conf.provider_class`` names and initialise it.

    Schemas are DDL text, a PySpark ``StructType`` or an Arrow schema. Settings are checked before
    anything is opened.
    """
    from holdfast.rows import arrow_schema

    registry = registry or installed_providers()
    provider_class = registry.resolve(conf.provider_class)
    if provider_class.settings is not None:
        provider_class.settings.parse(conf.backend_confs)
    registry.warn_of_foreign_settings(conf, provider_class)
    try:
        provider = provider_class()
    except TypeError as error:
        raise InvalidProvider(
            f"{provider_class.__module__}.{provider_class.__qualname__} cannot be created without arguments: {error};"
            " what it needs belongs into init()"
        ) from error
    provider.observer = registry.observer
    provider.filesystem_adapters = registry.filesystem_adapters
    provider.init(
        store_id,
        arrow_schema(key_schema),
        arrow_schema(value_schema),
        key_index_ordinal,
        conf,
        fs_options,
        guard,
    )
    registry.observer.provider_loaded(provider)
    return provider
