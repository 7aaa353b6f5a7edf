"""Without a usable Java there is a message that says what to install."""

import pytest

from holdfast.errors import EnvironmentNotReady
from holdfast.spark.java import require_java


def fake_java(folder, script):
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


def test_no_java(tmp_path):
    with pytest.raises(
        EnvironmentNotReady, match=r"no java on the PATH.*Java 17 or newer: install it .*apt-get install"
    ):
        require_java({"PATH": str(tmp_path)})
    with pytest.raises(EnvironmentNotReady, match=r"JAVA_HOME is /nowhere, which has no bin/java"):
        require_java({"JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("""echo 'openjdk version "11.0.2" 2019' >&2""", "is Java 11"),
        ("""echo 'java version "1.8.0_202"' >&2""", "is Java 8"),
        ("echo hello >&2", "does not tell its version: 'hello'"),
        ("exit 1", "-version failed"),
    ],
)
def test_unusable_java(tmp_path, script, said):
    with pytest.raises(EnvironmentNotReady, match=f"{said}.*Java 17 or newer"):
        require_java(fake_java(tmp_path, script))


def test_usable_java(tmp_path):
    assert require_java(fake_java(tmp_path, """echo 'openjdk version "21.0.1" 2023' >&2""")) == 21


def test_test_run_without_java_stops_with_the_message(pytester, monkeypatch):
    from pathlib import Path

    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(test_needs_spark="def test_it(spark):\n    pass\n")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    shown = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    assert shown.ret == 3
    assert any("Spark needs Java 17 or newer: install it" in line for line in shown.outlines + shown.errlines)
    assert not any("Traceback" in line for line in shown.outlines + shown.errlines)
