"""The documentation is true: its commands, its code, its quotations and what is generated."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Imported here, or the inner run of the kit would import it (and NumPy) again.
import holdfast.conformance
from holdfast import errors
from holdfast.cli.reference import settings_reference
from holdfast.plugins.registry import installed_providers

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("contrib/*/README.md"))]
BACKEND_GUIDE = ROOT / "docs" / "writing-a-backend.md"


def indented_commands(page):
    return [line.strip() for line in page.read_text().splitlines() if line.startswith("    python3 ")]


def test_the_test_command_is_what_ci_runs():
    demo, tests = indented_commands(ROOT / "README.md")
    assert demo.endswith("holdfast demo")
    assert tests in (ROOT / ".ci" / "run").read_text().splitlines()


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.S)


@pytest.mark.spark
def test_readme_example_runs_as_printed(tmp_path):
    """Twice: the second run goes on where the first one ended."""
    (example,) = python_blocks(ROOT / "README.md")
    assert len([line for line in example.splitlines() if line]) == 10
    (tmp_path / "example.py").write_text(example)
    activated = {**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
    for rows in (1000, 2000):
        command = [sys.executable, "example.py"]
        shown = subprocess.run(command, cwd=tmp_path, env=activated, capture_output=True, text=True, timeout=240)
        assert shown.returncode == 0, shown.stderr
        found = dict(re.findall(r"^\| *(\d+)\| *(\d+)\|$", shown.stdout, re.M))
        assert found == {str(user): str(sum(range(user, rows, 5))) for user in range(5)}, shown.stdout


def test_example_of_the_contract_runs_as_printed(capsys):
    (example,) = python_blocks(ROOT / "docs" / "architecture.md")
    exec(compile(example, "architecture.md", "exec"), {})
    assert "version 2 of" in capsys.readouterr().out


def marked_blocks(kind):
    found = re.findall(rf"<!-- {kind}: (\S+) -->\n```\w+\n(.*?)```", BACKEND_GUIDE.read_text(), re.S)
    assert found
    return found


def test_backends_of_the_guide_pass_the_kit(pytester, monkeypatch):
    for name, code in marked_blocks("file"):
        Path(pytester.path, name).write_text(code)
    monkeypatch.syspath_prepend(pytester.path)
    outcomes = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").parseoutcomes()
    assert set(outcomes) == {"passed"}
    assert outcomes["passed"] > 80, "the guide has two backends"


@pytest.mark.parametrize(("path", "quoted"), marked_blocks("from"))
def test_guide_quotes_the_code_as_it_is(path, quoted):
    # White space apart: the formatter wraps a quotation by its own indentation.
    assert "".join(quoted.split()) in "".join((ROOT / path).read_text().split())


def test_configuration_reference_is_up_to_date():
    installed = {provider.spec.name for provider in installed_providers().providers}
    if missing := {"lmdb", "memory", "redis", "rocksdb", "sqlite"} - installed:
        pytest.skip(f"needs all backends of this repository installed; missing: {missing} (tox -e docs has them)")
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page.endswith("\n\n" + settings_reference(installed_providers())), (
        "generate it anew: `holdfast settings` prints what belongs below the introduction of docs/configuration.md"
    )


def test_matrix_page_has_the_environments_of_the_label(tmp_path):
    command = [sys.executable, "-m", "tox", "list", "-m", "matrix", "--workdir", str(tmp_path)]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    page = (ROOT / "docs" / "matrix.md").read_text()
    shown = re.findall(r"^\| `(\S+)` \| (.+?) \|", page, re.M)
    assert sorted(shown) == sorted(re.findall(r"^(\S+) +-> (.+)$", listed, re.M)), (
        "generate it anew: `python tests/matrix/report.py` runs the matrix and writes docs/matrix.md"
    )


def test_every_error_is_explained():
    page = (ROOT / "docs" / "errors.md").read_text()
    explained = set(re.findall(r"^\| \**`(\w+)`", page, re.M))
    assert explained == {name for name, thing in vars(errors).items() if isinstance(thing, type)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_public_names_of_the_kit():
    assert holdfast.conformance.__all__ == ["Backend", "ProviderContract"]
