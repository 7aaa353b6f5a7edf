"""Bring the rows of a state partition into one task, and that task to the executor that holds the state.

A plain shuffle does the first. For the second the stream is joined with an *anchor*: a cached table with one row per
partition, hash-partitioned like the stream. The join needs no shuffle of the anchor, so Spark prefers to run each task
where the anchor's block is cached, batch after batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

from holdfast.errors import InvalidRequest
from holdfast.spark.anchor import Anchor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

PARTITION: Final = "__holdfast_partition"
"""The column that says which state partition a row belongs to."""

_SALT: Final = "__holdfast_salt"


class Placement:
    """How rows get to ``n`` tasks; operators of one Spark context with as many partitions share one."""

    def __init__(self, session: SparkSession, n: int, *, anchored: bool) -> None:
        self._n = n
        self._salts = salts(session, n)
        self._anchor: Anchor | None = None
        if anchored:
            rows = session.createDataFrame([(salt,) for salt in self._salts], f"{_SALT} int")
            self._anchor = Anchor(rows.repartition(n, _SALT))

    def place(self, frame: DataFrame, keys: Sequence[str]) -> DataFrame:
        """Add the column `PARTITION`, and shuffle so that task p gets exactly the rows of partition p."""
        taken = {PARTITION, _SALT} & set(frame.columns)
        if taken:
            raise InvalidRequest(f"columns called {', '.join(sorted(taken))} are Holdfast's own; rename them before")
        # A generator with one row: where there is nothing to read, Spark leaves out every operator up to the task's
        # function, the shuffle included, but a generator it leaves alone, because some put out rows at the end.
        partition = sf.stack(sf.lit(1), partition_of(keys, self._n)).alias(PARTITION)
        placed = frame.select(*[sf.col(quoted(column)) for column in frame.columns], partition)
        salt = sf.element_at(sf.array(*[sf.lit(salt) for salt in self._salts]), sf.col(PARTITION) + 1)
        if self._anchor is None:
            # The shuffle is the last step: one without rows stays below a function, but not below a projection.
            return placed.repartition(self._n, salt)
        placed = placed.withColumn(_SALT, salt).repartition(self._n, _SALT)
        return placed.join(self._anchor.frame.hint("shuffle_hash"), _SALT, "left").drop(_SALT)

    def rebalance(self) -> None:
        """Spread the tasks over the executors anew; running queries follow with their next batch."""
        if self._anchor is not None:
            self._anchor.spread()


def partition_of(keys: Sequence[str], n: int) -> Column:
    """Return the state partition of a key, with Spark's hash, to which -0.0 is 0.0 and all NaN are one."""
    return sf.pmod(sf.hash(*[sf.col(quoted(key)) for key in keys]), sf.lit(n))


def salts(session: SparkSession, n: int) -> list[int]:
    """Return for each of ``n`` partitions a number that Spark's own shuffle sends there."""
    found: dict[int, int] = {}
    start, size = 0, max(16, 8 * n)
    while len(found) < n:
        numbers = session.range(start, start + size, 1, 1).select(sf.col("id").cast("int").alias(_SALT))
        hashed = numbers.select(partition_of([_SALT], n).alias(PARTITION), _SALT)
        rows = hashed.groupBy(PARTITION).agg(sf.min(_SALT).alias(_SALT)).collect()
        found = {**{row[PARTITION]: row[_SALT] for row in rows}, **found}
        start += size
    return [found[partition] for partition in range(n)]


def has_several_executors(master: str) -> bool:
    """Whether tasks of an application with this master may run in more than one process."""
    return master != "local" and not master.startswith("local[")


def needs_anchor(frame: DataFrame) -> bool:
    """Whether a plain shuffle would move state between executors."""
    return has_several_executors(frame.sparkSession.sparkContext.master or "")


def quoted(name: str) -> str:
    """Return a column's name as Spark reads it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
