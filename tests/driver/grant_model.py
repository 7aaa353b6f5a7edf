"""A small world around the real grant rules: Spark, attempts, a log, and everything that may come between.

``search`` visits every state that a world of a given size can get into, and says which steps led to the first one that
breaks a promise. One store of one partition: grants of different stores have nothing to do with each other.

What the world has: Spark launches attempts in the order of their ids; it may give one up at any time (lost executor,
failed stage, stopped query), and the attempt lives on as a zombie; it runs copies of attempts that are not given up
(speculation, a second attempt of a stage); it counts the first of them that succeeds, and then the others no more; it
runs a batch several times (actions in ``foreachBatch``); it starts new runs. Every step of an attempt may come late or
never. The answers to an open, to a question for permission, to a publish and to a report may get lost, and the attempt
then asks again or dies. Time passes; the coordinator is started anew.

What it leaves out, so what the promises do not cover:

- Publishing is "create the file; if it exists, ask again and overwrite". Asking again and overwriting is one step here.
  A process that is stopped between the two for as long as another attempt takes to commit is late and not caught.
  ``plain_overwrite`` shows what a filesystem without a conditional create means: the same for the first question.
- An attempt that was launched before the coordinator was started anew opens nothing in the new one: it has neither its
  address nor its token.
- Unless the coordinator can ask Spark (``asks_spark``): the first open of a copy between the permission of its original
  and the next batch. Nothing tells it from a retry. ``late_copies`` lets it happen.
"""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from uuid import UUID

from holdfast.driver.grants import Grants, spark_is_not_asked
from holdfast.errors import Fenced
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.rpc.messages import Attempt, HostId

ROOT = "/q/state"
STORE = StateStoreId(ROOT, 1000, 0)
LIFETIME = 10.0


class Step(IntEnum):
    """How far an attempt has come."""

    LAUNCHED = 0
    OPENED = 1
    PERMITTED = 2
    CONFLICT = 3
    PUBLISHED = 4
    REPORTED = 5
    DEAD = 6


class Standing(IntEnum):
    """What Spark thinks of an attempt."""

    RUNNING = 0
    GIVEN_UP = 1
    COUNTED = 2


class Promise(Enum):
    """What the rules promise."""

    COUNTED_STAYS = "the version that a finished batch leaves is the one of the attempt that Spark counted last"
    ONLY_THE_NEWEST = "nobody of an older run or batch gets permission"
    EXPIRY = "no grant gets permission after it expired"
    IDENTITY = "an identity that is told is that of the version in the log"
    RETRY = "a retry that nobody disturbs gets through"


@dataclass(frozen=True)
class Size:
    """How much of everything there may be."""

    attempts: int = 3
    batches: int = 1
    actions: int = 1
    runs: int = 1
    restarts: int = 0
    expiries: int = 0
    lost_answers: int = 0
    skipped_batches: int = 0
    asks_spark: bool = False
    plain_overwrite: bool = False
    late_copies: bool = False
    """Whether copies may open when nothing tells them from a retry, and Spark is not asked."""
    promises: frozenset[Promise] = frozenset(Promise)


@dataclass(frozen=True)
class Task:
    """One attempt."""

    id: int
    run: int
    batch: int
    action: int
    incarnation: int
    originals: frozenset[int]
    """Attempts that were running when this one was launched: it may be their copy."""
    step: Step = Step.LAUNCHED
    standing: Standing = Standing.RUNNING
    reached: bool = False
    """Whether an open of it has reached the coordinator."""
    had_permission: bool = False
    grant: tuple[str, int] | None = None
    opened_at: int = 0

    @property
    def attempt(self):
        return Attempt(
            stage_id=self.run * 100 + self.batch * 10 + self.action, stage_attempt=0, task_attempt_id=self.id
        )

    @property
    def host(self):
        return HostId(f"exec{self.id}", "host", f"process{self.id}")

    @property
    def provider_id(self):
        return StateStoreProviderId(STORE, run_id(self.run))


@dataclass(frozen=True)
class World:
    """Everything but the coordinator."""

    run: int = 0
    batch: int = 0
    action: int = 0
    incarnation: int = 0
    expiries: int = 0
    lost: int = 0
    newest_opened: int = -1
    tasks: tuple[Task, ...] = ()
    log: tuple[int | None, ...] = ()
    """By batch, whose version is in the log."""
    finished: tuple[int | None, ...] = ()
    """By batch, whom Spark counted last; None for a batch in which it counted nobody."""

    def with_task(self, task):
        return replace(self, tasks=(*self.tasks[: task.id], task, *self.tasks[task.id + 1 :]))

    def published(self, task):
        return replace(self, log=(*self.log[: task.batch], task.id, *self.log[task.batch + 1 :]))


class Broken(Exception):
    """A promise was broken."""

    def __init__(self, promise, what):
        super().__init__(what)
        self.promise = promise


def run_id(run):
    return UUID(int=run + 1)


class Model:
    """The steps that a world may take, with the grants of ``rules``."""

    def __init__(self, size, rules=Grants):
        self.size = size
        self.rules = rules

    def start(self):
        return World(log=(None,) * self.size.batches), self._coordinator(0, 0)

    def _coordinator(self, incarnation, run):
        grants = self.rules(f"incarnation{incarnation}", LIFETIME)
        grants.start_run(ROOT, run_id(run))
        return pickle.dumps(grants)

    def _grants(self, world, pickled):
        grants = pickle.loads(pickled)
        if self.size.asks_spark:
            standing = {task.attempt: task.standing for task in world.tasks}
            grants._could_count = lambda attempt: standing[attempt] is Standing.RUNNING
        return grants

    @staticmethod
    def _pickle(grants):
        grants._could_count = spark_is_not_asked
        return pickle.dumps(grants)

    def steps(self, world, pickled):
        """Every next state, with the name of the step."""
        yield from self._of_spark(world, pickled)
        if world.incarnation < self.size.restarts:
            after = replace(world, incarnation=world.incarnation + 1, newest_opened=-1)
            yield "the coordinator starts anew", after, self._coordinator(after.incarnation, world.run)
        if world.expiries < self.size.expiries:
            yield "grants expire", replace(world, expiries=world.expiries + 1), pickled
        for task in world.tasks:
            for what, step in self._of(task, world):
                grants = self._grants(world, pickled)
                yield f"{what} {task.id}", step(grants), self._pickle(grants)
                if world.lost < self.size.lost_answers and task.step is not Step.CONFLICT:
                    grants = self._grants(world, pickled)
                    answered = step(grants)
                    if answered.tasks[task.id].step is not Step.DEAD:
                        unaware = replace(answered.tasks[task.id], step=task.step, grant=task.grant)
                        after = replace(answered.with_task(unaware), lost=world.lost + 1)
                        yield f"{what} {task.id}, answer lost", after, self._pickle(grants)

    def _of_spark(self, world, pickled):
        if world.batch < self.size.batches and len(world.tasks) < self.size.attempts:
            running = frozenset(task.id for task in world.tasks if task.standing is Standing.RUNNING)
            task = Task(len(world.tasks), world.run, world.batch, world.action, world.incarnation, running)
            yield f"launch {task.id} for batch {task.batch}", replace(world, tasks=(*world.tasks, task)), pickled
        for task in world.tasks:
            if task.standing is Standing.RUNNING:
                yield f"Spark gives up {task.id}", world.with_task(replace(task, standing=Standing.GIVEN_UP)), pickled
                if task.step is Step.REPORTED:
                    yield f"Spark counts {task.id}", self._counted(world, task), pickled
        if world.finished.count(None) < self.size.skipped_batches and world.batch < self.size.batches:
            after = replace(world, tasks=_all_given_up(world.tasks), finished=(*world.finished, None))
            yield "the batch ends without this store", replace(after, batch=world.batch + 1, action=0), pickled
        if world.run + 1 < self.size.runs and world.batch < self.size.batches:
            grants = self._grants(world, pickled)
            grants.start_run(ROOT, run_id(world.run + 1))
            after = replace(world, run=world.run + 1, action=0, newest_opened=-1, tasks=_all_given_up(world.tasks))
            yield f"run {after.run} begins", after, self._pickle(grants)

    def _counted(self, world, task):
        counted = replace(task, standing=Standing.COUNTED)
        world = replace(world.with_task(counted), tasks=_all_given_up(world.with_task(counted).tasks))
        if task.action + 1 < self.size.actions:
            return replace(world, action=world.action + 1)
        return replace(world, batch=world.batch + 1, action=0, finished=(*world.finished, task.id))

    def _of(self, task, world):
        if task.step is Step.LAUNCHED and task.incarnation == world.incarnation and not self._left_out(task, world):
            yield "open", lambda grants: self._open(task, world, grants)
        elif task.step is Step.OPENED:
            yield "ask", lambda grants: self._ask(task, world, grants, Step.PERMITTED)
        elif task.step is Step.PERMITTED:
            yield "create", lambda grants: self._create(task, world)
        elif task.step is Step.CONFLICT:
            yield "ask again and overwrite", lambda grants: self._overwrite(task, world, grants)
        elif task.step is Step.PUBLISHED:
            yield "report", lambda grants: self._report(task, world, grants)

    def _left_out(self, task, world):
        if self.size.asks_spark or self.size.late_copies or task.reached or world.newest_opened > task.batch:
            return False
        others = (world.tasks[number] for number in task.originals)
        return any(other.had_permission and other.standing is not Standing.GIVEN_UP for other in others)

    def _now(self, world):
        return world.expiries * LIFETIME

    def _fenced(self, task, world):
        standing = Standing.GIVEN_UP if task.standing is Standing.RUNNING else task.standing
        return world.with_task(replace(task, step=Step.DEAD, standing=standing))

    def _open(self, task, world, grants):
        try:
            grant = grants.open(task.provider_id, task.batch, task.attempt, task.host, self._now(world))
        except Fenced:
            return self._fenced(task, world)
        if grant.identity is not None and grant.identity != str(world.log[task.batch - 1]):
            self._broken(Promise.IDENTITY, f"{task.id} is told that version {task.batch} is of {grant.identity}")
        opened = replace(
            task,
            step=Step.OPENED,
            reached=True,
            grant=(grant.incarnation, grant.sequence),
            opened_at=world.expiries,
        )
        newest = max(world.newest_opened, task.batch) if task.run == world.run else world.newest_opened
        return replace(world.with_task(opened), newest_opened=newest)

    def _ask(self, task, world, grants, then):
        try:
            grants.may_commit(*task.grant, self._now(world))
        except Fenced:
            return self._fenced(task, world)
        if task.run != world.run:
            self._broken(Promise.ONLY_THE_NEWEST, f"{task.id} of run {task.run} may commit in run {world.run}")
        if task.batch < world.newest_opened:
            self._broken(Promise.ONLY_THE_NEWEST, f"{task.id} of batch {task.batch} may commit in a later one")
        if task.opened_at < world.expiries:
            self._broken(Promise.EXPIRY, f"{task.id} may commit after its grant expired")
        return world.with_task(replace(task, step=then, had_permission=True))

    def _create(self, task, world):
        if world.log[task.batch] is not None and not self.size.plain_overwrite:
            return world.with_task(replace(task, step=Step.CONFLICT))
        return world.published(task).with_task(replace(task, step=Step.PUBLISHED))

    def _overwrite(self, task, world, grants):
        after = self._ask(task, world, grants, Step.PUBLISHED)
        return after if after.tasks[task.id].step is Step.DEAD else after.published(task)

    def _report(self, task, world, grants):
        try:
            grants.report_commit(*task.grant, str(task.id), self._now(world))
        except Fenced:
            return self._fenced(task, world)
        return world.with_task(replace(task, step=Step.REPORTED))

    def _broken(self, promise, what):
        if promise in self.size.promises:
            raise Broken(promise, what)

    def check(self, world, pickled):
        """Raise Broken if this state breaks a promise."""
        for batch, counted in enumerate(world.finished):
            if counted is not None and world.log[batch] != counted:
                what = f"batch {batch} left the version of {world.log[batch]}, but Spark counted {counted}"
                self._broken(Promise.COUNTED_STAYS, what)
        if world.batch < self.size.batches:
            self._check_that_a_retry_gets_through(world, pickled)

    def _check_that_a_retry_gets_through(self, world, pickled):
        retry = Task(len(world.tasks), world.run, world.batch, world.action, world.incarnation, frozenset())
        world = replace(world, tasks=(*_all_given_up(world.tasks), retry))
        grants = self._grants(world, pickled)
        for step in (self._open, lambda *args: self._ask(*args, Step.PERMITTED), self._overwrite, self._report):
            world = step(world.tasks[retry.id], world, grants)
            if world.tasks[retry.id].step is Step.DEAD:
                self._broken(Promise.RETRY, "a retry that nobody disturbs is refused")
                return


def _all_given_up(tasks):
    return tuple(
        replace(task, standing=Standing.GIVEN_UP) if task.standing is Standing.RUNNING else task for task in tasks
    )


@dataclass(frozen=True)
class Found:
    """What a search found."""

    states: int
    broken: Promise | None = None
    story: tuple[str, ...] = ()
    """The steps that led there, and what they led to."""


def search(size, rules=Grants):
    """Visit every state, the nearest first, until a promise is broken."""
    model = Model(size, rules)
    start = model.start()
    came_from = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        try:
            model.check(*state)
            for step, *rest in model.steps(*state):
                after = tuple(rest)
                if after not in came_from:
                    came_from[after] = (state, step)
                    waiting.append(after)
        except Broken as broken:
            return Found(len(came_from), broken.promise, (*_path(came_from, state), str(broken)))
    return Found(len(came_from))


def _path(came_from, state):
    steps = []
    while came_from[state] is not None:
        state, step = came_from[state]
        steps.append(step)
    return reversed(steps)
