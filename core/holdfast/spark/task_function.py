"""What a task does: the function that Spark runs on every partition of an operator."""

from __future__ import annotations

import gc
import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.checkpoint.hadoop_options import fs_options
from holdfast.driver.commits import repair
from holdfast.errors import InvalidRequest, MissingVersion
from holdfast.executor.client import StateHostClient
from holdfast.executor.launch import ExecutorInfo
from holdfast.groups import Moment, Spool
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.plugins.versions import installed_software
from holdfast.rpc.coordinator_ref import StateStoreCoordinatorRef
from holdfast.rpc.messages import PROTOCOL, Attempt, Hello
from holdfast.spark.claims import ClaimOperator
from holdfast.spark.complete_input import complete_input
from holdfast.spark.executor_identity import ExecutorIdentity
from holdfast.spark.task import TaskInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.executor.remote import RemoteStateStore
    from holdfast.groups import Plan
    from holdfast.rpc.address import Address
    from holdfast.spark.claims import Claim
    from holdfast.spark.settings import OperatorSettings

_clients: dict[tuple[str, str], StateHostClient] = {}
"""This worker's clients; a worker serves many tasks, one after the other."""


@dataclass(frozen=True)
class TaskFunction:
    """Runs a plan on one partition of one micro-batch, and commits its state.

    Output is given to Spark only after the commit: what reads it may stop early (a ``limit``), and a partition that was
    begun is then complete all the same.
    """

    plan: Plan
    operator: str
    """The operator's mark."""
    name: str
    partitions: int
    columns: tuple[str, ...]
    """Names of the input's columns; on the way here they have plain ones, and the last one is the partition."""
    conf: Mapping[str, str]
    coordinator: Address
    settings: OperatorSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskInfo.current()
        if task.partition_id >= self.partitions:
            raise self._misplaced(f"task {task.partition_id} of its stage, and the operator has {self.partitions}")
        identity = ExecutorIdentity.of_this_worker()
        hello = Hello(PROTOCOL, installed_software(), f"executor {identity.executor_id} on {identity.host}")
        coordinator = StateStoreCoordinatorRef.for_executor(self.coordinator, hello)
        claim = coordinator.ask(ClaimOperator(task.query_id, task.run_id, task.batch_id, self.operator))
        spill_dir = self.settings.spill_dir or _local_dir()
        with ExitStack() as stack:
            engine = stack.enter_context(self.plan.engine(self.settings.memory_limit, spill_dir))
            output = stack.enter_context(Spool(self.settings.memory_limit, spill_dir))
            stores = self._open(stack, identity, task, claim)
            for batch in complete_input(batches):
                engine.consume(self._own(batch, task.partition_id))
            started = monotonic()
            moment = Moment(task.batch_id, claim.watermark_ms, claim.batch_time_ms)
            for batch in engine.finish(stores, moment):
                if batch.num_rows:
                    output.append(batch)
            took = int((monotonic() - started) * 1000)
            for store in stores.values():
                store.counts["allUpdatesTimeMs"] = took
                store.commit()
            yield from output.drain()

    def _open(
        self, stack: ExitStack, identity: ExecutorIdentity, task: TaskInfo, claim: Claim
    ) -> dict[str, RemoteStateStore]:
        client = self._client(identity)
        options = fs_options(claim.state_root, self.conf, self.settings.given_fs_options())
        attempt = Attempt(task.stage_id, task.attempt_number, task.task_attempt_id)
        stores = {}
        for name, schema in self.plan.stores.items():
            store_id = StateStoreId(claim.state_root, claim.operator_id, task.partition_id, name)
            try:
                stores[name] = client.open(
                    StateStoreProviderId(store_id, task.run_id),
                    schema.key,
                    schema.value,
                    None,
                    task.batch_id,
                    self.conf,
                    options,
                    attempt=attempt,
                    start_empty=claim.start_empty,
                )
            except MissingVersion as missing:
                raise self._incomplete(missing, task.batch_id, claim) from missing
            stack.enter_context(stores[name])
        return stores

    def _client(self, identity: ExecutorIdentity) -> StateHostClient:
        key = (self.coordinator.location, identity.key)
        if key not in _clients:
            executor = ExecutorInfo(
                identity.key,
                identity.executor_id,
                identity.host,
                identity.pid,
                self.coordinator.token,
                self.coordinator,
            )
            _clients[key] = StateHostClient(executor, self.conf)
            # PySpark collects garbage after every task; what is loaded by now stays, and is not looked at again.
            gc.collect()
            gc.freeze()
        return _clients[key]

    def _own(self, batch: pa.RecordBatch, partition_id: int) -> pa.RecordBatch:
        """The rows as the user knows them, after proof that they belong to this partition."""
        *columns, partition = batch.columns
        if batch.num_rows:
            found = pc.min_max(partition).as_py()
            if not found["min"] == found["max"] == partition_id:
                raise self._misplaced(f"task {partition_id}, and its rows belong to partition {found['min']}")
        return pa.RecordBatch.from_arrays(columns, names=list(self.columns))

    def _incomplete(self, missing: MissingVersion, batch_id: int, claim: Claim) -> MissingVersion:
        folder = f"{claim.state_root}/{claim.operator_id}"
        return MissingVersion(
            f"{missing}. Batch {batch_id - 1} did not leave the state of operator {self.name!r} behind in full: in an"
            " earlier run, foreachBatch read only a part of its output (limit(), show(), take()) or nothing of it, or"
            f" the operator was not in the query. If it was: {repair(batch_id - 1, claim.state_root)} If it was not"
            f" and may begin anew: remove {folder} and build it with start_empty=True"
        )

    def _misplaced(self, how: str) -> InvalidRequest:
        return InvalidRequest(
            f"operator {self.name!r} runs as {how}: a union or a coalesce behind it gives its tasks other numbers than"
            " those of its state. Build it with isolate=True, which puts a shuffle in between"
        )


def _local_dir() -> str:
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return folder if os.path.isdir(folder) else tempfile.gettempdir()


def marked(function: TaskFunction, mark: str) -> Any:
    """The function under a name by which Spark's plan of a query shows it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batches)

    run.__name__ = mark
    return run
