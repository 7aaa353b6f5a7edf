"""A function on a whole partition and its stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.groups.engine import Engine, Plan, StoreSchema
from holdfast.groups.failure import function_failed, name_of
from holdfast.groups.input import InputColumns
from holdfast.groups.output import Tabular, fit
from holdfast.groups.spool import Spool
from holdfast.ids import DEFAULT_STORE_NAME
from holdfast.rows import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from holdfast.contract.store import StateStore
    from holdfast.groups.engine import Moment

StoreFunction: TypeAlias = "Callable[[Any, Iterator[pa.RecordBatch]], Iterable[Tabular] | None]"


class StoreFunctionPlan(Plan):
    """Calls ``fn(store, batches)`` once for every partition, with or without rows.

    With several stores, or one that is not the default, the first argument is a mapping of them by name. What the
    function yields or returns are the batches of output; None is none.
    """

    def __init__(
        self, input_schema: Any, output_schema: Any, stores: Mapping[str, tuple[Any, Any]], fn: StoreFunction
    ) -> None:
        """Take the schemas of each store's keys and values by its name."""
        if not stores:
            raise InvalidRequest(f"name at least one store; one alone is called {DEFAULT_STORE_NAME!r}")
        self.input_schema: pa.Schema = arrow_schema(input_schema)
        self.output_schema = arrow_schema(output_schema)
        self.stores = {
            name: StoreSchema(arrow_schema(key), arrow_schema(value)) for name, (key, value) in stores.items()
        }
        self.fn = fn

    def engine(self, memory_limit_bytes: int, spill_dir: str) -> Engine:
        return _StoreFunctionEngine(self, memory_limit_bytes, spill_dir)


class _StoreFunctionEngine(Engine):
    def __init__(self, plan: StoreFunctionPlan, memory_limit_bytes: int, spill_dir: str) -> None:
        self._plan = plan
        self._input = InputColumns(plan.input_schema, ())
        self._batches = Spool(memory_limit_bytes, spill_dir)

    def consume(self, batch: pa.RecordBatch) -> None:
        self._batches.append(self._input.fit(batch))

    def finish(self, stores: Mapping[str, StateStore], moment: Moment) -> Iterator[pa.RecordBatch]:
        what = f"the output of {name_of(self._plan.fn)}"
        given = stores[DEFAULT_STORE_NAME] if list(self._plan.stores) == [DEFAULT_STORE_NAME] else dict(stores)
        for table in self._results(given):
            yield from fit(table, self._plan.output_schema, what).to_batches()

    def close(self) -> None:
        self._batches.close()

    def _results(self, given: Any) -> Iterator[Tabular]:
        try:
            results = self._plan.fn(given, self._batches.drain())
            if results is not None:
                yield from results
        except HoldfastError:
            # The store's own errors say what to do; Fenced and Unavailable are no fault of the function.
            raise
        except Exception as error:
            raise function_failed(self._plan.fn, "on this partition", error) from error
