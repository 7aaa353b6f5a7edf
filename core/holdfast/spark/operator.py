"""From a plan by key to a streaming DataFrame."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from holdfast.conf import HOLDFAST_PREFIX, HOLDFAST_PROVIDER_CLASS, StateStoreConf
from holdfast.errors import InvalidRequest
from holdfast.executor.settings import HostSettings
from holdfast.plugins.registry import installed_providers
from holdfast.spark.claims import MARK, Operator
from holdfast.spark.operator_names import refuse_duplicates
from holdfast.spark.placement import needs_anchor, quoted
from holdfast.spark.session import Driver, spark_conf
from holdfast.spark.settings import CoordinatorSettings, OperatorSettings
from holdfast.spark.task_function import TaskFunction, marked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from holdfast.groups import Plan

_PASSED_ON: Final = (HOLDFAST_PREFIX, "spark.sql.streaming.", "spark.hadoop.fs.", "spark.hadoop.google.")
"""What of Spark's configuration executors need to know."""


def stateful(
    frame: DataFrame,
    keys: Sequence[str],
    plan: Plan,
    *,
    name: str,
    partitions: int | None,
    provider: str | None,
    isolate: bool,
    start_empty: bool,
) -> DataFrame:
    """Run ``plan`` on the rows of ``frame``, brought together by ``keys``."""
    session = frame.sparkSession
    conf = {key: value for key, value in spark_conf(session).items() if key.startswith(_PASSED_ON)}
    if provider is not None:
        conf[HOLDFAST_PROVIDER_CLASS] = provider
    provider_class = StateStoreConf.parse(conf).provider_class
    backend_settings = installed_providers().resolve(provider_class).settings
    for others in (HostSettings, CoordinatorSettings, backend_settings):
        if others is not None:
            # Checked here, where the user sees it, and not first in the log of a host.
            others.parse(conf)
    settings = OperatorSettings.parse(conf)
    number = _partitions(frame, partitions)
    driver = Driver.of(session)
    conf = {key: value for key, value in conf.items() if not key.startswith(HostSettings.prefix)} | driver.host_conf
    refuse_duplicates([*driver.claims.named_in(_analyzed(frame)), name])

    mark = secrets.token_hex(6)
    driver.claims.register(
        mark,
        Operator(
            session,
            name,
            number,
            tuple(keys),
            provider_class,
            plan.stores,
            start_empty,
            conf,
            settings.given_fs_options(),
        ),
    )
    function = TaskFunction(plan, mark, name, number, tuple(frame.columns), conf, driver.address, settings)
    # PySpark looks columns up by name on the way into a function, where a dot or a backtick would have a meaning.
    plain_names = {column: f"c{at}" for at, column in enumerate(frame.columns)}
    plain = frame.select(*[sf.col(quoted(column)).alias(plain) for column, plain in plain_names.items()])
    placement = driver.placement(session, number, anchored=needs_anchor(frame))
    placed = placement.place(plain, [plain_names[key] for key in keys])
    result = placed.mapInArrow(marked(function, MARK + mark), from_arrow_schema(plan.output_schema))
    return result.repartition(number) if isolate else result


def _partitions(frame: DataFrame, partitions: int | None) -> int:
    if partitions is None:
        return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise InvalidRequest(f"partitions must be a whole number from 1 up; got {partitions!r}")
    return partitions


def _analyzed(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().analyzed().toString())  # noqa: SLF001 - PySpark shows no plan
