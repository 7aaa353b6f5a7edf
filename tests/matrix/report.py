"""Runs the matrix of environments and writes docs/matrix.md from what tox noted.

    python tests/matrix/report.py [--results FILE ...] [-- TOX_ARGUMENT ...]

With result files (``tox -m matrix --result-json FILE``, or of single environments) nothing runs: they are put together,
and of an environment that is in several the last one counts, so that a run that was cut off can go on. Exits with 1 if
an environment failed or did not run; the page says so too.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "matrix.md"

INTRODUCTION = """# The matrix

Every storage with the conformance kit and a real streaming query that is stopped and started again, every supported
minor version of PySpark with one such query, and every supported Python with the unit tests. `tox -m matrix` runs it
all. This page is generated: `python tests/matrix/report.py` runs it and writes what came out.

| environment | what it runs | backend and storage | Python | PySpark | tests | passed |
| --- | --- | --- | --- | --- | --- | --- |
"""

PLACES = {
    "files-local": "`files`, local disk",
    "files-inmemory": "`files`, memory",
    "files-s3": "`files`, S3 (moto)",
    "files-gcs": "`files`, GCS (fake-gcs-server)",
    "files-seaweedfs": "`files`, S3 (SeaweedFS)",
    "lmdb-local": "`lmdb`, local disk",
    "lmdb-s3": "`lmdb`, S3 (moto)",
    "memory": "`memory`",
    "redis": "`redis`, a Redis server",
    "rocksdb": "`rocksdb`, local disk",
    "sqlite": "`sqlite`, local disk",
}
"""What the last parts of an environment's name mean; the query of each PySpark runs on ``files``."""

NOT_RUN = "not run"
UNKNOWN = "-"


def environments():
    """The environments of the label and their descriptions, as tox has them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tox", "list", "-m", "matrix", "--workdir", folder]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return dict(re.findall(r"^(\S+) +-> (.+)$", listed, re.M))


def merged(results):
    """What tox noted of each environment that ran; later files count."""
    found = {}
    for result in results:
        found.update({name: noted for name, noted in result["testenvs"].items() if "result" in noted})
    return found


def outcomes(noted):
    """How many tests passed, failed, …, by the last lines of pytest."""
    counts = Counter()
    for command in noted.get("test", []):
        for line in re.findall(r"^=+ (.+) in [\d.]+s.* =+$", command["output"], re.M)[-1:]:
            counts.update({kind.rstrip("s"): int(number) for number, kind in re.findall(r"(\d+) (\w+)", line)})
    del counts["deselected"], counts["warning"]
    return counts


def python_of(noted):
    """The Python that ran, by pytest's first lines: tox itself may note only the one that was asked for."""
    said = [re.search(r"^platform .* Python ([\d.]+)", command["output"], re.M) for command in noted.get("test", [])]
    return next((found[1] for found in said if found), UNKNOWN)


def passed(noted):
    """Whether an environment passed, in the page's words."""
    if noted is None or noted["result"].get("skipped"):
        return NOT_RUN
    return "yes" if noted["result"]["success"] and outcomes(noted)["passed"] else "**no**"


def row(name, description, noted):
    """A line of the table."""
    place = PLACES.get(name.partition("-")[2], PLACES["files-local"])
    python = pyspark = tests = UNKNOWN
    if passed(noted) != NOT_RUN:
        python = python_of(noted)
        installed = dict(package.partition("==")[::2] for package in noted.get("installed_packages", []))
        pyspark = installed.get("pyspark", UNKNOWN)
        tests = ", ".join(f"{number} {kind}" for kind, number in outcomes(noted).items()) or UNKNOWN
    return f"| `{name}` | {description} | {place} | {python} | {pyspark} | {tests} | {passed(noted)} |\n"


def kind_of(name):
    """Storages first, then versions of PySpark, then of Python."""
    return name.startswith("py3"), name.startswith("py-pyspark")


def page(described, found):
    """The text of the page."""
    return INTRODUCTION + "".join(
        row(name, described[name], found.get(name)) for name in sorted(described, key=kind_of)
    )


def run_tox(arguments):
    """Run the matrix; returns what tox noted."""
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder, "result.json")
        command = [sys.executable, "-m", "tox", "run", "-m", "matrix", "--result-json", str(noted), *arguments]
        # That something failed is in what it noted.
        subprocess.run(command, cwd=ROOT, check=False, stdout=sys.stderr)
        return json.loads(noted.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("tox_arguments", nargs="*", metavar="TOX_ARGUMENT")
    given = parser.parse_args()
    results = [json.loads(path.read_text()) for path in given.results or []] or [run_tox(given.tox_arguments)]
    described, found = environments(), merged(results)
    PAGE.write_text(page(described, found))
    print(PAGE.read_text())
    return 0 if all(passed(found.get(name)) == "yes" for name in described) else 1


if __name__ == "__main__":
    sys.exit(main())
