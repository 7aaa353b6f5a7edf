"""What makes a class usable as a provider."""

from __future__ import annotations

import inspect
import re

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
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", spec.name):
        raise InvalidProvider(
            f"provider name {spec.name!r} is not usable; take lower-case letters, digits, '-' and '_', first a letter"
        )
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
    capabilities = getattr(provider, "capabilities", None)
    if not isinstance(capabilities, frozenset) or not all(isinstance(c, Capability) for c in capabilities):
        raise InvalidProvider(f"{name}.capabilities must be a frozenset of holdfast.Capability")
    if len(capabilities & DURABILITY) != 1:
        wanted = ", ".join(sorted(c.name for c in DURABILITY))
        raise InvalidProvider(f"{name}.capabilities must have exactly one of {wanted}: where its state is kept")
    settings = provider.settings
    if settings is not None and not (isinstance(settings, type) and issubclass(settings, Settings)):
        raise InvalidProvider(f"{name}.settings must be a subclass of holdfast.Settings")
    if settings is not None and not re.fullmatch(re.escape(HOLDFAST_PREFIX) + r"\w+\.", settings.prefix):
        raise InvalidProvider(
            f"{name}.settings.prefix is {settings.prefix!r}; it must look like {HOLDFAST_PREFIX}<backend>."
        )
    return provider
