"""Grants: which attempt may publish a version of a store.

Spark may run one task several times, and what it has given up may still be running. So that the attempt Spark counts is
the one whose version stays, every attempt needs a grant to work on a version and asks for permission right before it
publishes. The rules, each in a method of its own:

- a new run of a checkpoint revokes every grant of older runs, and runs that ended open nothing any more;
- a batch older than the newest that was opened in its run is refused;
- permission voids all other grants of that version of that store, and their attempts open it no more;
- an attempt that was launched before one that got permission is refused when it opens later than that; one that was
  launched after it, a retry or a second action on the batch, gets a grant and may overwrite;
- an attempt that committed opens that version no more: its task would do the work of several partitions;
- if the other attempt is of the same stage, the two may be copies of each other, and the one that Spark will count
  is not known here: Spark is asked, where it can be;
- a grant lives as long as its host reports, and no longer; a grant that is not known is void.

No locks, no clock: the coordinator calls from one thread at a time and says how late it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.errors import Fenced, InvalidRequest
from holdfast.rpc.messages import Attempt, Grant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from holdfast.ids import StateStoreId, StateStoreProviderId
    from holdfast.rpc.messages import HostId

CouldCount = Callable[[Attempt], "bool | None"]
"""Whether Spark would count this attempt if it succeeded now; None if nobody can say.

It turns false for good when the attempt failed or was given up, and when its partition is done, by itself or by a copy.
"""


def spark_is_not_asked(attempt: Attempt) -> bool | None:
    """Know nothing of attempts; for coordinators without a Spark."""
    return None


@dataclass(eq=False)
class Batch:
    """What attempts did to one version of one store by making the next."""

    grants: list[HeldGrant] = field(default_factory=list)
    permitted: int | None = None
    """The grant that got permission last."""
    permitted_attempts: list[Attempt] = field(default_factory=list)
    opened: set[int] = field(default_factory=set)
    """Attempts that ever had a grant."""
    beaten: set[int] = field(default_factory=set)
    """Those of them that had it before another one got permission."""
    committed: set[int] = field(default_factory=set)
    """Attempts that published."""
    identity: str | None = None
    """Of the version that was made, if nobody got permission to replace it since."""


@dataclass(eq=False)
class HeldGrant:
    """A grant as the coordinator remembers it."""

    sequence: int
    provider_id: StateStoreProviderId
    version: int
    attempt: Attempt
    host: HostId
    batch: Batch
    holders: int = 1
    """Sessions that have it: whoever asks again may do so because of a session that is yet to end."""
    void: str | None = None
    """Why it is void, for the message."""

    def end(self, reason: str) -> None:
        """Make it void; the first reason is the one that is told."""
        self.void = self.void or reason

    def __str__(self) -> str:
        return _shown(self.provider_id, self.version, self.attempt)


@dataclass
class Run:
    """The newest run at one checkpoint."""

    run_id: UUID
    newest: int = -1
    """The newest batch that was opened."""
    batches: dict[tuple[StateStoreId, int], Batch] = field(default_factory=dict)
    """The newest batch and the one before it, whose versions the newest one opens."""

    def grants(self) -> Iterator[HeldGrant]:
        """Every grant that is remembered."""
        for batch in self.batches.values():
            yield from batch.grants


@dataclass
class CheckpointRuns:
    """The runs at one checkpoint, of which only the newest may work."""

    newest: Run
    registered: bool = False
    """Whether the driver says when a run begins; else the first open does."""
    ended: set[UUID] = field(default_factory=set)


class Grants:
    """All grants of one coordinator."""

    def __init__(self, incarnation: str, lifetime: float, could_count: CouldCount = spark_is_not_asked) -> None:
        self._incarnation = incarnation
        self._lifetime = lifetime
        self._could_count = could_count
        self._sequence = 0
        self._checkpoints: dict[str, CheckpointRuns] = {}
        self._held: dict[int, HeldGrant] = {}
        self._deadlines: dict[HostId, float] = {}

    # Runs and batches

    def start_run(self, checkpoint_root: str, run_id: UUID) -> None:
        """Make this the run that may work; one that was replaced does not come back."""
        known = self._checkpoints.setdefault(checkpoint_root, CheckpointRuns(Run(run_id)))
        known.registered = True
        self._enter(known, checkpoint_root, run_id)

    def _enter(self, known: CheckpointRuns, checkpoint_root: str, run_id: UUID) -> Run:
        """The run by that id, which begins now if it is new."""
        self._refuse_older_run(known, checkpoint_root, run_id)
        if known.newest.run_id != run_id:
            self._revoke_older_run(known, run_id)
            # Nothing else is carried over, identities included: files may have been restored in between.
            known.newest = Run(run_id)
        return known.newest

    def _refuse_older_run(self, known: CheckpointRuns, checkpoint_root: str, run_id: UUID) -> None:
        if run_id in known.ended:
            later = f": run {known.newest.run_id} began after it" if known.newest.run_id != run_id else ""
            raise Fenced(f"run {run_id} at {checkpoint_root} is over{later}")

    def _revoke_older_run(self, known: CheckpointRuns, newer: UUID) -> None:
        known.ended.add(known.newest.run_id)
        for held in known.newest.grants():
            held.end(f"run {newer} of the query began")

    def _run_that_opens(self, provider_id: StateStoreProviderId) -> Run:
        root, run_id = provider_id.store_id.checkpoint_root, provider_id.query_run_id
        known = self._checkpoints.setdefault(root, CheckpointRuns(Run(run_id)))
        if known.registered and run_id != known.newest.run_id:
            self._refuse_older_run(known, root, run_id)
            raise Fenced(f"run {run_id} at {root} was not announced; run {known.newest.run_id} is the newest")
        return self._enter(known, root, run_id)

    def checkpoint_of(self, run_id: UUID) -> str | None:
        """The checkpoint at which this is the newest run."""
        return next((root for root, known in self._checkpoints.items() if known.newest.run_id == run_id), None)

    def begins_batch(self, provider_id: StateStoreProviderId, version: int) -> bool:
        """Whether an open of ``version`` would be the first of its batch, by a run that may work."""
        known = self._checkpoints.get(provider_id.store_id.checkpoint_root)
        if known is None:
            return True
        if known.newest.run_id == provider_id.query_run_id:
            return version > known.newest.newest
        return not known.registered and provider_id.query_run_id not in known.ended

    def end_run(self, run_id: UUID) -> None:
        """Void the grants of a run that ended; it gets no new ones."""
        for held in self._held.values():
            if held.provider_id.query_run_id == run_id:
                held.end(f"run {run_id} of the query ended")
        for known in self._checkpoints.values():
            if known.newest.run_id == run_id:
                known.ended.add(run_id)
                # A driver may outlive many runs, and nobody asks any more for what this one did.
                known.newest.batches.clear()

    def _refuse_older_batch(self, run: Run, version: int, what: str) -> None:
        if version < run.newest:
            raise Fenced(f"{what}: batch {version} is over, batch {run.newest} has begun")

    def _begin_batch(self, run: Run, version: int) -> None:
        self._revoke_older_batches(run, version)
        run.newest = version
        run.batches = {key: batch for key, batch in run.batches.items() if key[1] >= version - 1}

    def _revoke_older_batches(self, run: Run, version: int) -> None:
        for held in run.grants():
            held.end(f"batch {version} has begun")

    # Attempts

    def open(
        self, provider_id: StateStoreProviderId, version: int, attempt: Attempt, host: HostId, now: float
    ) -> Grant:
        """Give a grant to work on ``version``; raise Fenced to an attempt that comes too late for it."""
        run = self._run_that_opens(provider_id)
        what = _shown(provider_id, version, attempt)
        self._refuse_older_batch(run, version, what)
        if version > run.newest:
            self._begin_batch(run, version)
        batch = run.batches.setdefault((provider_id.store_id, version), Batch())
        self._refuse_again(batch, attempt, what)
        self._refuse_beaten(batch, attempt, what)
        self._refuse_launched_earlier(batch, attempt, what)
        self.renew(host, now)
        held = _asked_again(batch, attempt, host)
        if held is not None:
            held.holders += 1
        else:
            self._sequence += 1
            held = HeldGrant(self._sequence, provider_id, version, attempt, host, batch)
            self._held[held.sequence] = held
            batch.grants.append(held)
            batch.opened.add(attempt.task_attempt_id)
        made_by = run.batches.get((provider_id.store_id, version - 1))
        return Grant(self._incarnation, held.sequence, self._lifetime, None if made_by is None else made_by.identity)

    def _refuse_again(self, batch: Batch, attempt: Attempt, what: str) -> None:
        if attempt.task_attempt_id in batch.committed:
            raise InvalidRequest(
                f"{what}: it has committed this version already. One task does the work of several partitions, as"
                " behind a coalesce; build the operator with isolate=True, which puts a shuffle in between"
            )

    def _refuse_beaten(self, batch: Batch, attempt: Attempt, what: str) -> None:
        if attempt.task_attempt_id in batch.beaten:
            raise Fenced(f"{what}: another attempt got permission to commit while this one was running")

    def _refuse_launched_earlier(self, batch: Batch, attempt: Attempt, what: str) -> None:
        latest = max((each.task_attempt_id for each in batch.permitted_attempts), default=attempt.task_attempt_id)
        if latest > attempt.task_attempt_id:
            raise Fenced(f"{what}: attempt {latest}, which was launched after it, got permission to commit")

    def may_commit(self, incarnation: str, sequence: int, now: float) -> None:
        """Give permission to publish, or raise Fenced; whoever got it gets it again until another one does."""
        held = self._valid(incarnation, sequence, now)
        batch = held.batch
        if batch.permitted == sequence:
            return
        self._refuse_copy(batch, held)
        self._void_others(batch, held)
        batch.beaten |= batch.opened - {held.attempt.task_attempt_id}
        batch.permitted = sequence
        batch.permitted_attempts.append(held.attempt)
        self._forget_identity(batch)

    def _refuse_copy(self, batch: Batch, held: HeldGrant) -> None:
        """Refuse an attempt if Spark counts, or may yet count, another one of its stage that got permission."""
        for other in batch.permitted_attempts:
            if other == held.attempt or other.stage_id != held.attempt.stage_id:
                continue
            # In this order: once the other was counted, this one cannot be.
            if self._could_count(other):
                raise Fenced(f"{held}: attempt {other.task_attempt_id} got permission to commit and is still running")
            if self._could_count(held.attempt) is False:
                raise Fenced(f"{held}: Spark gave this attempt up, or counts attempt {other.task_attempt_id}")

    def _void_others(self, batch: Batch, permitted: HeldGrant) -> None:
        for held in batch.grants:
            if held is not permitted:
                held.end(f"attempt {permitted.attempt.task_attempt_id} got permission to commit")

    def _forget_identity(self, batch: Batch) -> None:
        batch.identity = None

    def report_commit(self, incarnation: str, sequence: int, identity: str | None, now: float) -> HeldGrant:
        """Remember what was published; raise Fenced to an attempt whose version is not the one that stays."""
        held = self._valid(incarnation, sequence, now)
        if held.batch.permitted != sequence:
            raise Fenced(f"{held}: it published without permission")
        held.batch.identity = identity
        held.batch.committed.add(held.attempt.task_attempt_id)
        return held

    def release(self, incarnation: str, sequence: int) -> None:
        """Take back a grant whose store was aborted; one that is not known does not matter."""
        if self._is_ours(incarnation) and sequence in self._held:
            held = self._held[sequence]
            held.holders -= 1
            if not held.holders:
                held.end("it was given back")

    # Validity

    def _valid(self, incarnation: str, sequence: int, now: float) -> HeldGrant:
        held = self._held.get(sequence) if self._is_ours(incarnation) else None
        if held is None:
            raise Fenced(
                f"grant {sequence} is not known: it has been void for some time, or the coordinator was started anew"
            )
        if self._is_expired(held.host, now):
            held.end(f"the grant expired, because its host, executor {held.host.executor_id}, stopped reporting")
        if held.void is not None:
            raise Fenced(f"{held}: {held.void}")
        return held

    def _is_ours(self, incarnation: str) -> bool:
        return incarnation == self._incarnation

    def _is_expired(self, host: HostId, now: float) -> bool:
        return now >= self._deadlines.get(host, now)

    def renew(self, host: HostId, now: float) -> None:
        """Prolong the grants of a host that reported; what had expired before stays so."""
        if host in self._deadlines and self._is_expired(host, now):
            self._end_expired(host)
        self._deadlines[host] = now + self._lifetime

    def _end_expired(self, host: HostId) -> None:
        for held in self._held.values():
            if held.host == host:
                held.end(f"the grant expired, because its host, executor {host.executor_id}, stopped reporting")

    def drop_executor(self, executor_id: str) -> None:
        """Void the grants of an executor that is gone."""
        for held in self._held.values():
            if held.host.executor_id == executor_id:
                held.end(f"executor {executor_id} was lost")

    def drop_void(self, now: float) -> None:
        """Forget what no answer depends on any more: hosts that stopped reporting, and void grants."""
        for host in [host for host in self._deadlines if self._is_expired(host, now)]:
            self._end_expired(host)
            del self._deadlines[host]
        for held in [held for held in self._held.values() if held.void is not None]:
            del self._held[held.sequence]
            held.batch.grants.remove(held)


def _asked_again(batch: Batch, attempt: Attempt, host: HostId) -> HeldGrant | None:
    """The grant whose answer was lost: whoever asks twice has one grant, not two."""
    for held in batch.grants:
        if held.attempt == attempt and held.host == host and held.void is None:
            return held
    return None


def _shown(provider_id: StateStoreProviderId, version: int, attempt: Attempt) -> str:
    store = provider_id.store_id.store_checkpoint_location()
    return f"attempt {attempt.task_attempt_id} at version {version} of {store}"
