"""The page of the matrix says what tox noted, and no more."""

from report import merged, page


def noted(output, success=True, skipped=False):
    return {
        "python": {"version_info": [3, 11, 0, "final", 0]},
        "installed_packages": ["pyarrow==26.0.1", "pyspark==4.3.0"],
        "test": [{"output": f"platform linux -- Python 3.11.7, pytest-9.2.0\n{output}"}],
        "result": {"success": success, "exit_code": 0 if success else 1, "skipped": skipped},
    }


def cells(environment, found):
    (line,) = [line for line in page({environment: "what it runs"}, found).splitlines() if f"`{environment}`" in line]
    return [cell.strip() for cell in line.strip("|").split("|")][2:]


def test_an_environment_that_passed():
    output = "collected 9 items\n===== 7 passed, 1 skipped, 3 deselected in 68.83s (0:01:08) =====\n"
    shown = cells("py-lmdb-s3", {"py-lmdb-s3": noted(output)})
    assert shown == ["`lmdb`, S3 (moto)", "3.11.7", "4.3.0", "7 passed, 1 skipped", "yes"]


def test_an_environment_that_failed():
    output = "===== 2 failed, 1 passed, 2 errors in 1.00s =====\n"
    shown = cells("py-redis", {"py-redis": noted(output, success=False)})
    assert shown == ["`redis`, a Redis server", "3.11.7", "4.3.0", "2 failed, 1 passed, 2 error", "**no**"]


def test_an_environment_without_tests_did_not_pass():
    assert cells("py-pyspark40", {"py-pyspark40": noted("")})[-2:] == ["-", "**no**"]


def test_environments_that_did_not_run():
    skipped = {"py310-memory": noted("", skipped=True)}
    assert cells("py310-memory", skipped) == ["`memory`", "-", "-", "-", "not run"]
    assert cells("py310-memory", {})[-1] == "not run"


def test_the_last_result_counts_and_one_that_did_not_run_does_not():
    failed, good = noted("===== 1 failed in 1.00s =====", success=False), noted("===== 1 passed in 1.00s =====")
    files = [{"testenvs": {"a": failed, "b": good}}, {"testenvs": {"a": good, "b": {}, "c": {}}}]
    assert merged(files) == {"a": good, "b": good}
