"""The conformance kit: what every provider must pass.

A backend proves itself with one class and one fixture::

    from holdfast.conformance import Backend, ProviderContract

    class TestMine(ProviderContract):
        @pytest.fixture
        def backend(self, tmp_path):
            return Backend("mine", str(tmp_path / "state"))

Needs the extra ``holdfast[conformance]``.
"""

import pkgutil
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.conformance.backend import Backend

if TYPE_CHECKING:
    from holdfast.conformance.contract import ProviderContract

__all__ = ["Backend", "ProviderContract"]


def __getattr__(name: str) -> Any:
    # When asked for, so that the processes which the kit kills start without pytest and Hypothesis.
    if name != "ProviderContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import_module("hypothesis")
        pytest = import_module("pytest")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the conformance kit needs {error.name}: pip install 'holdfast[conformance]'", name=error.name
        ) from error
    # The kit is a library to pytest, and a bare "assert" would tell its user nothing.
    unloaded = {f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)} - set(sys.modules)
    pytest.register_assert_rewrite(*sorted(unloaded))
    return import_module("holdfast.conformance.contract").ProviderContract
