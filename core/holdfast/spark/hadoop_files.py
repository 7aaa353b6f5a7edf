"""Spark's own files, read through Spark's own filesystem: whatever wrote them can read them, with its credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from holdfast.checkpoint.storage import MissingFile
from holdfast.checkpoint.urls import redact_urls
from holdfast.errors import CorruptState, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.errors import HoldfastError

_MEANINGS: Final[dict[str, type[HoldfastError]]] = {
    "java.io.FileNotFoundException": MissingFile,
    "org.apache.hadoop.fs.ChecksumException": CorruptState,
}


def read_file(session: SparkSession, path: str) -> bytes:
    """Return the content of a file, whose path is in Hadoop's spelling; MissingFile if there is none."""
    try:
        return _read(session, path)
    except Py4JJavaError as failed:
        cause = failed.java_exception
        kind = _MEANINGS.get(str(cause.getClass().getName()), Unavailable)
        raise kind(redact_urls(f"cannot read {path}: {cause.toString()}")) from failed
    except PySparkException as failed:
        # What PySpark makes of some of Java's exceptions.
        raise Unavailable(redact_urls(f"cannot read {path}: {failed}")) from failed


def _read(session: SparkSession, path: str) -> bytes:
    java_path = session.sparkContext._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]  # noqa: SLF001 -- Hadoop is reached no other way
    # What Spark's own logs are opened with.
    conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 -- as above
    stream = java_path.getFileSystem(conf).open(java_path)
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()
