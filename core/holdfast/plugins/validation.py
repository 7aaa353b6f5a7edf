"""What makes a class usable as a provider."""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from typing import Any

from holdfast.conf import HOLDFAST_PREFIX
from holdfast.contract.capabilities import DURABILITY, Capability
from holdfast.contract.provider import StateStoreProvider
from holdfast.errors import InvalidProvider
from holdfast.plugins.hookspecs import ProviderSpec
from holdfast.settings import Settings


def check_spec(spec: object) -> None:
    """Refuse what a plug-in must not return from ``holdfast_providers``."""
    if not isinstance(spec, ProviderSpec):
        raise InvalidProvider(f"holdfast_providers returns ProviderSpec objects, not {type(spec).__name__}")
    if not isinstance(spec.name, str) or not re.fullmatch(r"[a-z][a-z0-9_-]*", spec.name):
        raise InvalidProvider(
            f"provider name {spec.name!r} is not usable; take lower-case letters, digits, '-' and '_', first a letter"
        )
    if not isinstance(spec.aliases, tuple) or not all(isinstance(alias, str) for alias in spec.aliases):
        raise InvalidProvider(f"provider {spec.name!r}: aliases must be a tuple of names, not {spec.aliases!r}")
    check_provider_class(spec.provider)


def check_provider_class(provider: object) -> type[StateStoreProvider]:
    """Return ``provider`` if it is a complete provider class, else say what it lacks."""
    if not isinstance(provider, type):
        raise InvalidProvider(f"{provider!r} is not a class; a provider is a subclass of holdfast.StateStoreProvider")
    name = f"{provider.__module__}.{provider.__qualname__}"
    if not issubclass(provider, StateStoreProvider):
        raise InvalidProvider(f"{name} is not a provider: it is not a subclass of holdfast.StateStoreProvider")
    if inspect.isabstract(provider):
        missing = ", ".join(sorted(provider.__abstractmethods__))
        raise InvalidProvider(f"{name} is not complete: it does not implement {missing}")
    try:
        _check_declarations(provider, name)
    except InvalidProvider:
        raise
    except Exception as error:
        raise InvalidProvider(f"the declarations of {name} cannot be read: {type(error).__name__}: {error}") from error
    return provider


def _check_declarations(provider: type[StateStoreProvider], name: str) -> None:
    capabilities = getattr(provider, "capabilities", None)
    if not isinstance(capabilities, frozenset) or not all(isinstance(c, Capability) for c in capabilities):
        raise InvalidProvider(f"{name}.capabilities must be a frozenset of holdfast.Capability")
    if len(capabilities & DURABILITY) != 1:
        wanted = ", ".join(sorted(c.name for c in DURABILITY))
        raise InvalidProvider(f"{name}.capabilities must have exactly one of {wanted}: where its state is kept")
    settings: Any = provider.settings
    if settings is None:
        return
    is_settings = isinstance(settings, type) and issubclass(settings, Settings)
    if not is_settings or not is_dataclass(settings):
        raise InvalidProvider(f"{name}.settings must be a frozen dataclass that is a subclass of holdfast.Settings")
    prefix = getattr(settings, "prefix", None)
    if not isinstance(prefix, str) or not re.fullmatch(re.escape(HOLDFAST_PREFIX) + r"\w+\.", prefix):
        raise InvalidProvider(f"{name}.settings.prefix is {prefix!r}; it must look like {HOLDFAST_PREFIX}<backend>.")
    checked: type[Settings] = settings  # type: ignore[assignment]  # is_dataclass has narrowed it away
    for item in checked.declared():
        item.accepts  # noqa: B018 - raises for a type that a setting cannot have
