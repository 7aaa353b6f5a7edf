"""What the code may import, and what it shows to the outside."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parent.parent
CORE = ROOT / "core" / "holdfast"

# Who may import whom inside the core; a part may always import itself.
LEAVES = {"errors"}
BASE = LEAVES | {"ids", "settings", "conf"}
MAY_IMPORT = {
    "errors": set(),
    "ids": LEAVES,
    "settings": LEAVES,
    "conf": LEAVES | {"settings"},
    "rows": LEAVES,
    "contract": BASE | {"rows"},
    "checkpoint": BASE | {"contract", "rows"},
    "plugins": BASE | {"contract", "rows"},
    "rpc": BASE | {"plugins"},
    "driver": BASE | {"rpc"},
    "executor": BASE | {"checkpoint", "contract", "plugins", "rpc"},
    "groups": BASE | {"contract", "rows"},
    "spark": BASE | {"checkpoint", "contract", "driver", "executor", "groups", "plugins", "rows", "rpc"},
    "conformance": BASE | {"contract", "plugins", "rows"},
    "cli": BASE | {"checkpoint", "contract", "driver", "executor", "plugins", "rows", "spark"},
    "__main__": {"cli"},
}
MAY_IMPORT_PYSPARK = {"spark", "continuous"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources():
    for path in sorted(CORE.rglob("*.py")):
        part = path.relative_to(CORE).parts[0].removesuffix(".py")
        if part != "__init__":
            yield pytest.param(path, part, id=str(path.relative_to(CORE)))


@pytest.mark.parametrize(("path", "part"), list(sources()))
def test_imports_go_one_way(path, part):
    for name in imports(path):
        if name.startswith("holdfast."):
            imported = name.split(".")[1]
            assert imported == part or imported in MAY_IMPORT[part], f"{part} must not import {imported}"
        if name.split(".")[0] in {"pyspark", "py4j"}:
            assert part in MAY_IMPORT_PYSPARK, f"only {MAY_IMPORT_PYSPARK} import pyspark"
        assert not name.startswith("holdfast_"), "the core names no backend"


def backend_sources():
    for path in [*ROOT.glob("backends/**/*.py"), *ROOT.glob("contrib/*/src/**/*.py")]:
        yield pytest.param(path, id=str(path.relative_to(ROOT)))


@pytest.mark.parametrize("path", list(backend_sources()))
def test_backends_use_public_names_only(path):
    for name in imports(path):
        package, _, rest = name.partition(".")
        if package == "holdfast":
            public = rest in holdfast.__all__ or rest.split(".")[0] == "errors"
            assert public, f"{name} is not public: add it to holdfast.__all__ or do without"


def test_public_names_are_sorted_and_exist():
    assert holdfast.__all__ == sorted(holdfast.__all__)
    for name in holdfast.__all__:
        assert hasattr(holdfast, name)


def test_nothing_else_is_public():
    for name in holdfast.__all__:
        getattr(holdfast, name)  # some are loaded only when asked for
    shown = {name for name, thing in vars(holdfast).items() if not name.startswith("_")}
    modules = {path.stem for path in CORE.glob("*.py")} | {path.name for path in CORE.iterdir() if path.is_dir()}
    assert shown - modules == set(holdfast.__all__) - modules


def test_every_error_is_in_the_tree_at_the_top_of_its_module():
    from holdfast import errors

    for name, thing in vars(errors).items():
        if isinstance(thing, type):
            assert issubclass(thing, errors.HoldfastError)
            assert f"{name} " in errors.__doc__ or f"{name}\n" in errors.__doc__, f"{name} is missing in the tree"


def test_import_loads_nothing_heavy():
    code = "import sys, holdfast; print(sorted({'pyspark', 'pyarrow', 'numpy', 'pytest'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_no_module_without_a_subject():
    named = {path.stem for path in [*ROOT.glob("core/**/*.py"), *ROOT.glob("backends/**/*.py")]}
    assert not named & {"utils", "util", "common", "helpers", "misc"}
