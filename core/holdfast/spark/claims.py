"""Which state belongs to which operator of a running query; decided on the driver, asked by every task.

An operator registers when its DataFrame is built. Which query it became part of, and under which number its state is in
that query's checkpoint, is known only when the first task of a run asks.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID  # noqa: TC003 - messages are read by their annotations

from holdfast.checkpoint.hadoop_options import fs_options
from holdfast.checkpoint.metadata import OperatorMetadata, check_operator, read_operator, write_operator
from holdfast.checkpoint.schema_files import StateSchema
from holdfast.checkpoint.storage import Folder
from holdfast.contract.capabilities import DURABILITY
from holdfast.driver.progress import RUNS_KEPT
from holdfast.errors import Fenced, InvalidRequest
from holdfast.plugins.registry import installed_providers
from holdfast.rpc.messages import Message
from holdfast.spark.operator_names import refuse_duplicates
from holdfast.spark.queries import RunningQuery

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from holdfast.driver.coordinator import StateStoreCoordinator
    from holdfast.groups.engine import StoreSchema

FIRST_OPERATOR_ID: Final = 1000
"""Spark's own operators of the same query have the numbers from 0 up."""

OPERATORS_KEPT: Final = 10_000
"""Operators that a query can still be started with: those that were built or used last."""

MARK: Final = "holdfast_op_"
"""Starts the name of a task function, by which an operator is found in Spark's plan of a query."""

_MARKED: Final = re.compile(MARK + r"([0-9a-f]+)")


@dataclass(frozen=True)
class Operator:
    """What the driver remembers of an operator."""

    session: SparkSession
    """Whose queries it can be part of."""
    name: str
    partitions: int
    key_columns: tuple[str, ...]
    provider_class: str
    stores: Mapping[str, StoreSchema]
    start_empty: bool
    conf: Mapping[str, str]
    """Spark's configuration when it was built."""
    given_fs_options: Mapping[str, Any]

    def metadata(self, first_batch: int) -> OperatorMetadata:
        """What the checkpoint records of it."""
        provider = installed_providers().resolve(self.provider_class)
        (kind,) = provider.capabilities & DURABILITY
        stores = {name: StateSchema(schema.key, schema.value).all_nullable() for name, schema in self.stores.items()}
        return OperatorMetadata(
            self.name, kind.name, self.provider_class, self.partitions, self.key_columns, stores, first_batch
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """Where a task finds its state, and what time it is."""

    state_root: str
    operator_id: int
    watermark_ms: int | None
    batch_time_ms: int
    start_empty: bool
    """Whether the state begins with this batch."""


@dataclass(frozen=True, slots=True)
class ClaimOperator(Message[Claim]):
    """A task asks for the state of its operator; the first of a batch makes the driver look after the one before."""

    query_id: UUID
    run_id: UUID
    batch_id: int
    operator: str


@dataclass
class _Run:
    """One run of one query."""

    query: RunningQuery
    state_root: str
    operators: dict[str, Operator]
    """All operators of the query's plan, by their marks."""
    ids: dict[str, int]
    first_batches: dict[str, int]
    batches: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    """Watermark and time of the batches begun in this run; the last two are kept."""

    def names(self) -> dict[int, str]:
        """The operators by number."""
        return {self.ids[mark]: operator.name for mark, operator in self.operators.items()}


class Claims:
    """The operators of one Spark context, and the runs that use them."""

    def __init__(self, coordinator: StateStoreCoordinator) -> None:
        self._coordinator = coordinator
        self._lock = Lock()
        self._operators: OrderedDict[str, Operator] = OrderedDict()
        self._runs: dict[UUID, _Run] = {}
        self._ended_names: OrderedDict[UUID, dict[int, str]] = OrderedDict()

    def register(self, mark: str, operator: Operator) -> None:
        """An operator was built."""
        with self._lock:
            self._operators[mark] = operator
            if len(self._operators) > OPERATORS_KEPT:
                self._operators.popitem(last=False)

    def named_in(self, plan: str) -> list[str]:
        """The names of the operators in a plan of Spark's."""
        return [self._operators[mark].name for mark in _marks(plan) if mark in self._operators]

    def ended(self) -> list[UUID]:
        """The runs that tasks have asked for and that Spark does not run any more."""
        with self._lock:
            sessions = {run_id: next(iter(run.operators.values())).session for run_id, run in self._runs.items()}
        active = {str(query.runId) for session in set(sessions.values()) for query in session.streams.active}
        return [run_id for run_id in sessions if str(run_id) not in active]

    def names(self, run_id: UUID) -> dict[int, str]:
        """The operators of a run, by number, also when it is over."""
        with self._lock:
            run = self._runs.get(run_id)
            return self._ended_names.get(run_id, {}) if run is None else run.names()

    def claim(self, message: ClaimOperator) -> Claim:
        """Answer a task."""
        with self._lock:
            run = self._runs.get(message.run_id)
            if run is None:
                run = self._runs[message.run_id] = self._begin_run(message)
            if message.operator not in run.ids:
                raise InvalidRequest(
                    f"an operator of query {message.query_id} is not in the plan that it was started with; do not build"
                    " operators inside foreachBatch"
                )
            if message.batch_id not in run.batches:
                self._begin_batch(run, message)
            watermark, time = run.batches[message.batch_id]
            return Claim(
                run.state_root,
                run.ids[message.operator],
                watermark,
                time,
                start_empty=0 < message.batch_id == run.first_batches[message.operator],
            )

    def _begin_run(self, message: ClaimOperator) -> _Run:
        asking = self._operators.get(message.operator)
        if asking is None:
            raise InvalidRequest(f"query {message.query_id} has an operator that was built in another application")
        query = RunningQuery.find(asking.session, message.query_id)
        if query.run_id != message.run_id:
            raise Fenced(f"run {message.run_id} of query {message.query_id} is over; run {query.run_id} goes on")
        marks = [mark for mark in _marks(query.plan(asking.session)) if mark in self._operators]
        operators = {mark: self._operators[mark] for mark in marks}
        for mark in marks:
            self._operators.move_to_end(mark)
        refuse_duplicates(operator.name for operator in operators.values())
        options = fs_options(query.checkpoint_root, asking.conf, asking.given_fs_options)
        state_root = f"{query.checkpoint_root.rstrip('/')}/state"
        self._coordinator.start_run(state_root, message.run_id)
        ids, first_batches = assign(operators, Folder.open(state_root, options), message.batch_id)
        return _Run(query, state_root, operators, ids, first_batches)

    def _begin_batch(self, run: _Run, message: ClaimOperator) -> None:
        batch_id = message.batch_id
        expected = {
            run.ids[mark]: dict.fromkeys(operator.stores, operator.partitions)
            for mark, operator in run.operators.items()
        }
        if run.batches:
            # Batches in which no task of ours ran left no version either: opening the next one then says so.
            for skipped in range(max(run.batches) + 1, batch_id):
                self._coordinator.start_commit_tracking(run.query.run_id, skipped, expected)
        self._coordinator.start_commit_tracking(run.query.run_id, batch_id, expected)
        time = run.query.batch_time(run.operators[message.operator].session, batch_id)
        run.batches = {**dict(list(run.batches.items())[-1:]), batch_id: (time.watermark_ms, time.batch_time_ms)}

    def end_run(self, run_id: UUID) -> None:
        """A run is over; its providers can be unloaded."""
        with self._lock:
            run = self._runs.pop(run_id, None)
            if run is not None:
                self._ended_names[run_id] = run.names()
                if len(self._ended_names) > RUNS_KEPT:
                    self._ended_names.popitem(last=False)
        self._coordinator.deactivate_instances(run_id)


def _marks(plan: str) -> list[str]:
    return list(dict.fromkeys(_MARKED.findall(plan)))


def assign(operators: Mapping[str, Operator], state: Folder, batch_id: int) -> tuple[dict[str, int], dict[str, int]]:
    """Find each operator's state by its name, give new ones a number, and record them; numbers and first batches."""
    stored = _stored(state)
    ids_by_name = {metadata.name: operator_id for operator_id, metadata in stored.items()}
    unknown = [operator for operator in operators.values() if operator.name not in ids_by_name]
    unclaimed = sorted(ids_by_name.keys() - {operator.name for operator in operators.values()})
    if unknown and unclaimed:
        raise InvalidRequest(
            f"{state.shown} has state of the operators {_quoted(unclaimed)}, which this query does not have, and the"
            f" query has {_quoted(sorted(o.name for o in unknown))}, of which there is no state. If one was renamed,"
            " give it its old name with name='…'; if the old state is not wanted any more, remove its folder"
            f" ({', '.join(f'{state.shown}/{ids_by_name[name]}' for name in unclaimed)})"
        )
    if batch_id > 0:
        late = sorted(operator.name for operator in unknown if not operator.start_empty)
        if late:
            raise InvalidRequest(
                f"the query at {state.shown} is at batch {batch_id}, and there is no state of its operators"
                f" {_quoted(late)}: it ran without them until now, or their state was removed. With start_empty=True"
                " they begin here with empty state; else use a new checkpoint"
            )
    ids: dict[str, int] = {}
    first_batches: dict[str, int] = {}
    next_id = max([FIRST_OPERATOR_ID - 1, *stored]) + 1
    for mark, operator in sorted(operators.items(), key=lambda item: item[1].name):
        operator_id = ids_by_name.get(operator.name)
        if operator_id is None:
            operator_id, next_id = next_id, next_id + 1
            first_batches[mark] = batch_id
            write_operator(state.child(str(operator_id)), operator.metadata(batch_id))
        else:
            before = stored[operator_id]
            first_batches[mark] = before.first_batch
            check_operator(before, operator.metadata(before.first_batch), f"{state.shown}/{operator_id}")
        ids[mark] = operator_id
    return ids, first_batches


def _stored(state: Folder) -> dict[int, OperatorMetadata]:
    found = {}
    for name in state.folders():
        if name.isdecimal() and int(name) >= FIRST_OPERATOR_ID:
            metadata = read_operator(state.child(name))
            if metadata is not None:
                found[int(name)] = metadata
    return found


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"{name!r}" for name in names)
