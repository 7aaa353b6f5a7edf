"""Which micro-batch a task belongs to, as Spark tells its Python worker."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from pyspark import TaskContext

from holdfast.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One attempt of one task of a micro-batch."""

    query_id: UUID
    """Of the query; stays over restarts from its checkpoint."""
    run_id: UUID
    """Of this run of the query."""
    batch_id: int
    partition_id: int
    """The task's place in its stage, which below a union or a coalesce is not that of its state."""
    stage_id: int
    attempt_number: int
    """How often this task was tried before in this attempt of its stage, whose own number Python does not see."""
    task_attempt_id: int
    """Unique in the application, and rising in the order in which tasks start."""

    @classmethod
    def current(cls) -> TaskInfo:
        """Read them in the task itself; ``InvalidRequest`` where there is no micro-batch."""
        context = TaskContext.get()
        if context is None:
            raise InvalidRequest("this is not a Spark task; state is only open inside the tasks of a streaming query")
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        run_id = context.getLocalProperty("spark.jobGroup.id")
        if query_id is None and batch_id is None:
            raise InvalidRequest(
                "this task knows of no micro-batch. In a streaming query, it was started by a thread of the program's "
                "own (a thread pool in foreachBatch?): wrap that thread's function in "
                "pyspark.inheritable_thread_target(session). Otherwise the DataFrame is not run as a streaming query: "
                "start it with writeStream"
            )
        if query_id is None or batch_id is None:
            missing = "query id" if query_id is None else "batch id"
            raise InvalidRequest(
                f"this task has no {missing}: its thread took over some of the query's local properties only; start it "
                "with pyspark.inheritable_thread_target(session)"
            )
        return cls(
            query_id=_uuid("query id", query_id),
            run_id=_uuid("run id", run_id),
            batch_id=int(batch_id),
            partition_id=context.partitionId(),
            stage_id=context.stageId(),
            attempt_number=context.attemptNumber(),
            task_attempt_id=context.taskAttemptId(),
        )


def _uuid(what: str, text: str | None) -> UUID:
    try:
        return UUID(text or "")
    except ValueError:
        raise InvalidRequest(
            f"the {what} of this task is {text!r}, not that of a streaming query: foreachBatch must not set a job "
            "group of its own around the action"
        ) from None
