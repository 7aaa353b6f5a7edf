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

try:
    import hypothesis  # noqa: F401
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the conformance kit needs {error.name}: pip install 'holdfast[conformance]'", name=error.name
    ) from error

# The kit is a library to pytest, and a bare "assert" would tell its user nothing.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from holdfast.conformance.backend import Backend  # noqa: E402 - after the line above, or it has no effect
from holdfast.conformance.contract import ProviderContract  # noqa: E402

__all__ = ["Backend", "ProviderContract"]
