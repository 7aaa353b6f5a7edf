"""What the driver knows of a streaming query, and which queries Holdfast cannot serve."""

from __future__ import annotations

import json
import socket
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from holdfast.checkpoint.urls import locate, redact_urls
from holdfast.errors import CorruptState, InvalidRequest
from holdfast.spark.hadoop_files import read_file
from holdfast.spark.settings import OperatorSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

SHARED_FILESYSTEM: Final = OperatorSettings.prefix + "sharedFilesystem"
"""Set to true where a local path is the same folder on all machines."""

_BINARY_COLLATION: Final = "UTF8_BINARY"
_MICRO_BATCH: Final = "MicroBatchExecution"


@dataclass(frozen=True, slots=True)
class BatchTime:
    """What Spark decided about time before a batch ran, so that a batch that runs again sees the same."""

    watermark_ms: int | None
    """None: the query has no watermark, or not yet."""
    batch_time_ms: int


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """One run of a query, found by the id that its tasks know."""

    query_id: UUID
    run_id: UUID
    checkpoint_root: str
    """The checkpoint, resolved, in Hadoop's spelling."""

    @classmethod
    def find(cls, session: SparkSession, query_id: UUID) -> RunningQuery:
        """Ask Spark; refuse a query that does not run, and kinds whose batches are not repeatable."""
        query = session.streams.get(str(query_id))
        if query is None:
            raise InvalidRequest(
                f"no query {query_id} runs in this session; it was stopped, or another session runs it"
            )
        execution = query._jsq.streamingQuery()  # noqa: SLF001 -- PySpark shows no checkpoint
        kind = str(execution.getClass().getSimpleName())
        if kind.startswith("AsyncProgressTracking"):
            raise InvalidRequest(
                f"query {query_id} has asynchronous progress tracking, with which a batch that runs again may have "
                "other input; remove the option asyncProgressTrackingEnabled"
            )
        if kind != _MICRO_BATCH:
            raise InvalidRequest(f"query {query_id} runs as {kind}; use a micro-batch trigger, such as processingTime")
        found = cls(query_id, UUID(str(query.runId)), str(execution.resolvedCheckpointRoot()))
        refuse_local_checkpoint(session, found.checkpoint_root)
        return found

    def plan(self, session: SparkSession) -> str:
        """Spark's plan of the query, as text."""
        query = session.streams.get(str(self.query_id))
        if query is None:
            raise InvalidRequest(f"query {self.query_id} was stopped")
        return str(query._jsq.streamingQuery().logicalPlan().toString())  # noqa: SLF001 -- PySpark shows no plan

    def batch_time(self, session: SparkSession, batch_id: int) -> BatchTime:
        """Read the watermark and the time of a batch in the log of offsets, which Spark writes before it runs it."""
        entry = f"{self.checkpoint_root.rstrip('/')}/offsets/{batch_id}"
        content = read_file(session, entry)
        try:
            # The first line is the version of the format, the second the batch's metadata, the others are the sources'.
            metadata = json.loads(content.splitlines()[1])
            watermark, time = int(metadata["batchWatermarkMs"]), int(metadata["batchTimestampMs"])
        except (IndexError, KeyError, TypeError, ValueError) as damage:
            raise CorruptState(
                f"{redact_urls(entry)} is not an entry of Spark's log of offsets ({damage!r}); restore it from a "
                "copy of the checkpoint, or start from a new one"
            ) from damage
        return BatchTime(watermark or None, time)


def refuse_unsuitable(frame: Any, keys: Sequence[str]) -> None:
    """Refuse, when the query is built, what is no streaming DataFrame of this process, and keys that cannot be one."""
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise InvalidRequest(
            "Spark Connect runs the driver elsewhere, where Holdfast has no process; create the session in the driver, "
            "without remote(…) and SPARK_REMOTE"
        )
    if not isinstance(frame, DataFrame):
        raise InvalidRequest(f"a DataFrame is needed; got {type(frame).__name__}")
    if not frame.isStreaming:
        raise InvalidRequest(
            "this DataFrame is not a streaming one, so it has no state; read it with readStream, or use Spark's own "
            "groupBy and applyInArrow for a batch"
        )
    types = {field.name: field.dataType for field in frame.schema.fields}
    twice = [name for name, count in Counter(field.name for field in frame.schema.fields).items() if count > 1]
    if twice:
        raise InvalidRequest(
            f"several columns are called {', '.join(map(repr, twice))}, so a function could not tell them apart; "
            "rename or drop all but one before"
        )
    for key in keys:
        if key not in types:
            raise InvalidRequest(f"there is no column {key!r} to group by; there are {', '.join(types)}")
        _refuse_key_type(key, types[key])


def refuse_local_checkpoint(session: SparkSession, checkpoint_root: str) -> None:
    """Refuse a checkpoint on this machine's disk when executors run on others."""
    if locate(checkpoint_root).protocol != "file" or session.conf.get(SHARED_FILESYSTEM, "false") == "true":
        return
    context = session.sparkContext
    if (context.master or "").startswith("local"):
        return
    infos = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 -- PySpark does not list executors
    elsewhere = sorted({str(info.host()) for info in infos if not is_this_machine(str(info.host()))})
    if elsewhere:
        raise InvalidRequest(
            f"the checkpoint {checkpoint_root} is on this machine's disk, but executors run on {', '.join(elsewhere)}; "
            f"set checkpointLocation to a filesystem that all share, or, if this one is, {SHARED_FILESYSTEM}=true"
        )


def is_this_machine(host: str) -> bool:
    """Whether a name or an address is this machine's own: only then a socket can be bound to it."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _refuse_key_type(key: str, kind: DataType) -> None:
    if isinstance(kind, StringType) and getattr(kind, "collation", _BINARY_COLLATION) != _BINARY_COLLATION:
        raise InvalidRequest(
            f"key column {key!r} has the collation {kind.collation}, in which different texts are equal; group by "
            f"collate({key}, '{_BINARY_COLLATION}'), or by one spelling of it, such as lower({key})"
        )
    if isinstance(kind, MapType):
        raise InvalidRequest(
            f"key column {key!r} is or holds a map, whose entries have no order, so equal ones could differ; group by "
            f"array_sort(map_entries({key}))"
        )
    if isinstance(kind, ArrayType):
        _refuse_key_type(key, kind.elementType)
    if isinstance(kind, StructType):
        for field in kind.fields:
            _refuse_key_type(key, field.dataType)
