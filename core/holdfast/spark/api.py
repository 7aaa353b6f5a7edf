"""What users call: stateful operators on streaming DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.errors import InvalidRequest
from holdfast.groups import AggregatePlan, ArrowFunctionPlan, RowFunctionPlan, StoreFunctionPlan
from holdfast.spark.operator import stateful
from holdfast.spark.operator_names import operator_name
from holdfast.spark.queries import refuse_unsuitable
from holdfast.spark.session import Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.groups.aggregates import Aggregate


def group_by(
    df: DataFrame,
    *columns: str,
    name: str | None = None,
    partitions: int | None = None,
    provider: str | None = None,
    isolate: bool = False,
    start_empty: bool = False,
) -> StatefulGroups:
    """Group a streaming DataFrame by columns, to keep state for each group.

    ``name`` is how a checkpoint knows the operator (default: the function's name and the columns); ``partitions`` how
    many parts the state has, fixed with the first start (default: ``spark.sql.shuffle.partitions``); ``provider`` the
    backend (default: as configured). ``isolate`` is for an operator below a ``union`` or ``coalesce``. ``start_empty``
    lets an operator that is new to a query begin in the midst of it.
    """
    if not columns:
        raise InvalidRequest('name the columns to group by, as in hf.group_by(df, "user")')
    refuse_unsuitable(df, columns)
    return StatefulGroups(
        df,
        columns,
        name,
        {"partitions": partitions, "provider": provider, "isolate": isolate, "start_empty": start_empty},
    )


class StatefulGroups:
    """A streaming DataFrame grouped by key; say what to do with each group."""

    def __init__(self, df: DataFrame, keys: Sequence[str], name: str | None, options: Mapping[str, Any]) -> None:
        self._df = df
        self._keys = tuple(keys)
        self._name = name
        self._options = options

    def apply(self, fn: Callable[..., Any], output: Any, state: Any) -> DataFrame:
        """Call ``fn(key, rows, state)`` once for every key that has rows in a micro-batch.

        ``key`` is a tuple, ``rows`` an iterator of named rows (``row.amount``), ``state`` has ``exists``,
        ``get(default)``, ``update(tuple)``, ``remove()``, ``watermark`` and ``batch_time``. ``fn`` yields or returns
        output tuples. ``output`` and ``state`` are schemas, as DDL text or Spark's types.
        """
        plan = RowFunctionPlan(self._keys, self._df.schema, state, output, fn)
        return self._stateful(plan, fn)

    def apply_arrow(self, fn: Callable[[pa.Table, pa.Table], Any], output: Any, state: Any) -> DataFrame:
        """Call ``fn(rows, states)`` with the rows of many keys, all rows of a key in one call.

        ``states`` is a table with one row for each key in ``rows``: key columns, state columns, and ``exists``. ``fn``
        returns ``(new_states, output)``, either of which may be None. Keys missing from ``new_states`` keep their
        state; a key whose boolean column ``remove`` is true loses it.
        """
        plan = ArrowFunctionPlan(self._keys, self._df.schema, state, output, fn)
        return self._stateful(plan, fn)

    def agg(self, **aggregates: Aggregate) -> DataFrame:
        """Aggregate over the whole stream: ``agg(n=hf.count(), total=hf.sum("amount"))``.

        Each micro-batch puts out the new values of the keys that have rows in it.
        """
        ansi = (self._df.sparkSession.conf.get("spark.sql.ansi.enabled") or "true") == "true"
        plan = AggregatePlan(self._keys, self._df.schema, aggregates, ansi=ansi)
        return self._stateful(plan, None, f"agg({', '.join(self._keys)})")

    def _stateful(self, plan: Any, fn: Callable[..., Any] | None, default: str | None = None) -> DataFrame:
        name = operator_name(default if self._name is None else self._name, fn, self._keys)
        return stateful(self._df, self._keys, plan, name=name, **self._options)


def map_partitions_with_state_store(
    df: DataFrame,
    fn: Callable[..., Any],
    *columns: str,
    output: Any,
    key: Any = None,
    value: Any = None,
    stores: Mapping[str, tuple[Any, Any]] | None = None,
    name: str | None = None,
    partitions: int | None = None,
    provider: str | None = None,
    isolate: bool = False,
    start_empty: bool = False,
) -> DataFrame:
    """Call ``fn(store, batches)`` once for every partition of a micro-batch, also for one without rows.

    Rows with equal ``columns`` are in one partition. ``key`` and ``value`` are the schemas of the store's rows; or
    ``stores`` names several, as ``{"name": (key, value)}``, and ``fn`` gets a mapping of them. ``batches`` is an
    iterator of ``pyarrow.RecordBatch``; ``fn`` yields output batches or tables.
    """
    if not columns:
        raise InvalidRequest("name the columns by which rows are brought together, after the function")
    refuse_unsuitable(df, columns)
    if (stores is None) == (key is None or value is None):
        raise InvalidRequest("say what the store holds: either key= and value=, or stores={'name': (key, value)}")
    plan = StoreFunctionPlan(df.schema, output, stores or {"default": (key, value)}, fn)
    return stateful(
        df,
        columns,
        plan,
        name=operator_name(name, fn, columns),
        partitions=partitions,
        provider=provider,
        isolate=isolate,
        start_empty=start_empty,
    )


def state_operators(query: StreamingQuery) -> list[dict[str, Any]]:
    """What Holdfast's operators of a query did in its last batches, oldest first, with Spark's own names for it."""
    from pyspark.sql import SparkSession

    session = SparkSession.active()
    driver = Driver.existing(session)
    if driver is None:
        return []
    run_id = UUID(str(query.runId))
    return [
        {
            "batchId": each.batch_id,
            "operatorId": each.operator_id,
            "operatorName": driver.claims.names(run_id).get(each.operator_id, ""),
            **each.metrics,
            "numShufflePartitions": each.num_shuffle_partitions,
            "numStateStoreInstances": each.num_state_store_instances,
            "customMetrics": dict(each.custom_metrics),
        }
        for each in driver.coordinator.progress(run_id)
    ]


def rebalance(session: SparkSession) -> None:
    """Spread the state of all running queries over the executors that there are now, as after a scale-out.

    Queries need not stop: from the next batch on, tasks run in their new places, and executors load what they did not
    have. With a single executor nothing happens.
    """
    driver = Driver.existing(session)
    if driver is not None:
        driver.rebalance()
