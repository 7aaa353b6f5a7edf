"""Fixtures for all tests."""

import os
import sys

import pytest


@pytest.fixture(scope="session")
def spark():
    """A real Spark on this machine."""
    from pyspark.sql import SparkSession

    # Otherwise Spark starts its workers with the first python3 on the PATH, which need not have Holdfast.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[1]")
        .appName("holdfast-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()
