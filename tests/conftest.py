"""Fixtures for all tests."""

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def spark():
    """A real Spark on this machine; without Java the run stops with a message that says what to install."""
    from holdfast.errors import EnvironmentNotReady
    from holdfast.spark.java import require_java

    try:
        require_java()
    except EnvironmentNotReady as missing:
        pytest.exit(str(missing), returncode=3)
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .appName("holdfast-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()
