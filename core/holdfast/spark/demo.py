"""The query of ``holdfast demo``: running totals of orders per user, on a Spark of its own."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import holdfast as hf
from holdfast.conf import HOLDFAST_PROVIDER_CLASS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS: Final = 2

_ORDERS: Final = (
    # More and more users, so that the state grows.
    "concat('user', pmod(xxhash64(value), 10000 + value div 20)) as user",
    "value % 100 as amount",
)


def running_total(key: tuple[str], rows: Iterator[Any], state: Any) -> Iterator[tuple[str, int, int]]:
    """Add the orders of one user to the user's totals."""
    orders, total = state.get((0, 0))
    for row in rows:
        orders, total = orders + 1, total + row.amount
    state.update((orders, total))
    yield (*key, orders, total)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one micro-batch did."""

    batch_id: int
    rows: int
    rows_per_second: float
    keys: int
    """In the state, after it."""
    changed: int
    update_ms: float
    commit_ms: float
    """Like the other, the mean of the partitions."""
    state_bytes: int


class RunningTotals:
    """Spark, the query, and its checkpoint; can be started again after ``stop``."""

    def __init__(self, folder: Path, provider: str, rows_per_batch: int) -> None:
        self.checkpoint = folder / "checkpoint"
        self.log = folder / "spark.log"
        self._provider = provider
        self._rows_per_batch = rows_per_batch
        self._session: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._reports: dict[int, BatchReport] = {}

    def start(self) -> None:
        """Start Spark, and the query where it was stopped."""
        # Spark would else start its workers with the first python3 on the PATH, which need not have Holdfast.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        with _errors_to(self.log):
            self._session = (
                SparkSession.builder.master(f"local[{PARTITIONS}]")
                .appName("holdfast-demo")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.sql.shuffle.partitions", str(PARTITIONS))
                .config(HOLDFAST_PROVIDER_CLASS, self._provider)
                .getOrCreate()
            )
        stream = self._session.readStream.format("rate-micro-batch").option("rowsPerBatch", self._rows_per_batch)
        totals = hf.group_by(stream.load().selectExpr(*_ORDERS), "user").apply(
            running_total, output="user string, orders long, total long", state="orders long, total long"
        )
        writer = totals.writeStream.format("noop").option("checkpointLocation", str(self.checkpoint))
        self._query = writer.start()

    @property
    def session(self) -> SparkSession:
        """The Spark that runs now."""
        if self._session is None:
            raise RuntimeError("Spark is not running")
        return self._session

    @property
    def failure(self) -> str | None:
        """Why the query ended by itself, if it did."""
        error = self._query.exception() if self._query is not None else None
        return None if error is None else str(error)

    def reports(self) -> list[BatchReport]:
        """The batches of this and earlier runs, oldest first."""
        if self._query is not None:
            operators = {each["batchId"]: each for each in hf.state_operators(self._query)}
            for progress in self._query.recentProgress:
                operator = operators.get(progress["batchId"])
                if operator is not None:
                    report = _report(progress, operator)
                    self._reports[report.batch_id] = report
        return [self._reports[batch_id] for batch_id in sorted(self._reports)]

    def stop_query(self) -> None:
        """Stop the query where it is, which is in the midst of a batch as a rule; Spark goes on."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def stop(self) -> None:
        """Stop the query and Spark, and with it every process that held state."""
        self.stop_query()
        if self._session is not None:
            self._session.stop()
            self._session = None

    def state(self, operator_id: int, batch_id: int) -> DataFrame:
        """The totals after a batch, as Spark's own reader of state finds them in the checkpoint."""
        reader = self.session.read.format("statestore").option("operatorId", operator_id).option("batchId", batch_id)
        return reader.load(str(self.checkpoint)).select("key.user", "value.orders", "value.total")

    def recount(self, batch_id: int) -> DataFrame:
        """The totals after a batch, counted anew by Spark from all orders until then."""
        orders = self.session.range(self.orders_until(batch_id)).withColumnRenamed("id", "value").selectExpr(*_ORDERS)
        return orders.groupBy("user").agg(sf.count("*").alias("orders"), sf.sum("amount").alias("total"))

    def orders_until(self, batch_id: int) -> int:
        """How many orders came until the end of a batch."""
        return (batch_id + 1) * self._rows_per_batch


def _report(progress: Any, operator: dict[str, Any]) -> BatchReport:
    stores = max(1, operator["numStateStoreInstances"])
    return BatchReport(
        batch_id=progress["batchId"],
        rows=progress["numInputRows"],
        rows_per_second=progress["processedRowsPerSecond"],
        keys=operator["numRowsTotal"],
        changed=operator["numRowsUpdated"],
        update_ms=operator["allUpdatesTimeMs"] / stores,
        commit_ms=operator["commitTimeMs"] / stores,
        state_bytes=operator["memoryUsedBytes"],
    )


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Let processes that are started within write their standard error to a file: Spark's JVM says a lot there."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
