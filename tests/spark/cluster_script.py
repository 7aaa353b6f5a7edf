"""A script with a Spark of its own: one process can have no second one beside that of the tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark


def outcome_of(*arguments, **environment):
    """Run Python with these arguments; returns what the script printed last, which is JSON."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),  # local-cluster starts executors from there
            "PYSPARK_PYTHON": sys.executable,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
