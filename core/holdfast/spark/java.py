"""Spark needs Java; PySpark's own failure without it is a stack trace that does not say so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import EnvironmentNotReady

if TYPE_CHECKING:
    from collections.abc import Mapping

OLDEST_JAVA: Final = 17

_INSTALL = (
    f"Spark needs Java {OLDEST_JAVA} or newer: install it"
    " (Debian and Ubuntu: `apt-get install openjdk-17-jre-headless`;"
    " Fedora: `dnf install java-17-openjdk-headless`; macOS: `brew install openjdk@17`)"
    " and, if it is not on the PATH, set JAVA_HOME to its folder"
)


def require_java(environment: Mapping[str, str] = os.environ) -> int:
    """The major version of the Java that Spark will use, or ``EnvironmentNotReady`` with what to install."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else environment.get("PATH", ""))
    if java is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on the PATH"
        raise EnvironmentNotReady(f"{where}. {_INSTALL}")
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentNotReady(f"{java} -version failed: {error}. {_INSTALL}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', shown)
    if match is None:
        raise EnvironmentNotReady(f"{java} does not tell its version: {shown.strip()!r}. {_INSTALL}")
    version = int(match[1])
    if version < OLDEST_JAVA:
        raise EnvironmentNotReady(f"{java} is Java {version}. {_INSTALL}")
    return version
