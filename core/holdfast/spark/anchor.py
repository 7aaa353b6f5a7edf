"""The cached table that says where the partitions of state belong, and its blocks on the executors."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_TRIES: Final = 5
"""A batch that is planned while blocks are being made may make some of them elsewhere."""


class Anchor:
    """A DataFrame with one row in each partition, cached so that each executor has its share of the blocks."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame
        self._context = frame.sparkSession.sparkContext
        self.spread()

    def spread(self) -> None:
        """Cache the blocks anew, in turn on the executors that there are now."""
        try:
            self._spread_evenly()
        except Py4JError:
            # What is asked of Spark there is not public; the blocks do their work wherever they are.
            log.warning("This Spark does not let the state be spread evenly over the executors", exc_info=True)
            self.frame.persist().count()

    def _spread_evenly(self) -> None:
        for _ in range(_TRIES):
            self.frame.unpersist(blocking=True)
            self.frame.persist()
            cached = self._cached()
            self._drop_leftovers(cached)
            homes = self._homes(cached.getNumPartitions())
            # Now, so that the blocks are there before the next batch asks for them.
            (self._located(homes).zip(cached, self._any) if homes else cached).count()
            if not homes or self._found(cached) == homes:
                return
        log.warning("The executors are too busy to spread the state over them evenly; hf.rebalance tries it again")

    # What PySpark does not show of blocks and executors

    @property
    def _jvm(self) -> Any:
        return self._context._jvm  # noqa: SLF001

    @property
    def _scala_context(self) -> Any:
        return self._context._jsc.sc()  # noqa: SLF001

    @property
    def _any(self) -> Any:
        return self._jvm.scala.reflect.ClassTag.Any()

    def _cached(self) -> Any:
        """Give the RDD of the cached blocks; it is not computed by that."""
        manager = self.frame.sparkSession._jsparkSession.sharedState().cacheManager()  # noqa: SLF001
        data = manager.lookupCachedData(self.frame._jdf).get()  # noqa: SLF001
        return data.cachedRepresentation().cacheBuilder().cachedColumnBuffers()

    def _drop_leftovers(self, cached: Any) -> None:
        """Drop what batches that ran while the blocks were replaced have cached again for themselves."""
        # A copy: what is dropped leaves the map.
        for rdd in dict(self._context._jsc.getPersistentRDDs()).values():  # noqa: SLF001
            if _plan(rdd) == _plan(cached) and rdd.id() != cached.id():
                rdd.unpersist(False)

    def _homes(self, blocks: int) -> list[str]:
        """Say for each block on which executor it should be, as Spark spells locations; nothing without executors."""
        living = set(_elements(self._scala_context.getExecutorIds()))
        listed = _elements(self._scala_context.statusStore().executorList(True))
        found = sorted(
            f"executor_{each.hostPort().rpartition(':')[0]}_{each.id()}" for each in listed if each.id() in living
        )
        return [found[block % len(found)] for block in range(blocks)] if found else []

    def _located(self, homes: Sequence[str]) -> Any:
        to_seq = self._jvm.PythonUtils.toSeq
        pairs = [self._jvm.scala.Tuple2(block, to_seq([home])) for block, home in enumerate(homes)]
        return self._scala_context.makeRDD(to_seq(pairs), self._any)

    def _found(self, cached: Any) -> list[str]:
        """Say where the blocks are, by what Spark goes by itself when it places tasks."""
        # It looks where blocks are at the beginning of a job, and knows no better until the next one.
        self._located([""]).count()
        places = (self._scala_context.getPreferredLocs(cached, at) for at in range(cached.getNumPartitions()))
        return [",".join(str(place.toString()) for place in _elements(each)) for each in places]


def _plan(cached: Any) -> str:
    """Say what an RDD of cached blocks was made from: its name, in which only the number of the plan is new."""
    return re.sub(r"plan_id=\d+", "", str(cached.name()))


def _elements(sequence: Any) -> list[Any]:
    iterator = sequence.iterator()
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found
