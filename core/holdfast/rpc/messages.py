"""What processes say to the coordinator, and what it answers.

Every message is a record of its own class, and its class says what the answer is. Annotations are evaluated here at
import (no deferred ones), because the codec and ``Message`` read them.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar, get_args
from uuid import UUID

from holdfast.ids import StateStoreProviderId

PROTOCOL: Final = 1
"""Number of this set of messages; it goes up with every change that the other side would misread."""

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Far more than an ordinary message needs, and little enough to hold in memory."""

ReplyT = TypeVar("ReplyT")


class Message(Generic[ReplyT]):
    """A request that is answered with a ``ReplyT``."""

    __slots__ = ()

    reply: ClassVar[Any]
    """The annotation of the answer: ``ReplyT``."""

    idempotent: ClassVar[bool] = True
    """Whether asking again, after an answer that was lost, leaves the receiver as asking once does."""

    def __init_subclass__(cls) -> None:
        """Take the answer's type from the class statement, so that it stands in one place only."""
        super().__init_subclass__()
        (cls.reply,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class HostId:
    """One process that serves state on an executor."""

    executor_id: str
    """Spark's id of the executor; ``driver`` in local mode."""
    host: str
    """The executor's host name as Spark spells it."""
    process: str
    """Tells this process from every other on that executor, earlier ones included."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a task to run one partition."""

    stage_id: int
    stage_attempt: int
    task_attempt_id: int
    """Unique in the SparkContext, and higher for what Spark launched later."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The coordinator's word that an attempt may work on a version, until another one does."""

    incarnation: str
    """The coordinator that gave it; one that was restarted knows none of its predecessor's grants."""
    sequence: int
    """Number of the grant within that coordinator."""
    expires_in: float
    """Seconds for which it holds."""
    identity: str | None
    """Identity of the version that was opened, where the coordinator knows which content was committed last."""


@dataclass(frozen=True, slots=True)
class Hello(Message[None]):
    """The first message on every connection: who is calling, and with which software.

    Two different versions find out by this record that they are different, so its fields never change.
    """

    protocol: int
    """The caller's ``PROTOCOL``."""
    software: dict[str, str]
    """The caller's distributions and their versions, as ``plugins.versions.installed_software`` has them."""
    sender: str
    """Who is calling, as an operator would say it: ``executor 7 on host-b``."""


@dataclass(frozen=True, slots=True)
class ReportActiveInstance(Message[None]):
    """A provider was loaded on an executor; sent one-way."""

    provider_id: StateStoreProviderId
    host: str
    executor_id: str


@dataclass(frozen=True, slots=True)
class GetLocation(Message[str | None]):
    """Where a provider is loaded, as Spark spells preferred locations: ``executor_<host>_<executor id>``."""

    provider_id: StateStoreProviderId


@dataclass(frozen=True, slots=True)
class VerifyIfInstanceActive(Message[bool]):
    """Whether this executor is the one that has the provider."""

    provider_id: StateStoreProviderId
    executor_id: str


@dataclass(frozen=True, slots=True)
class DeactivateInstances(Message[bool]):
    """A run of a query ended: forget all its providers."""

    run_id: UUID


@dataclass(frozen=True, slots=True)
class StopCoordinator(Message[bool]):
    """End the coordinator."""

    idempotent: ClassVar[bool] = False  # a second one finds nobody, or a coordinator that came after


@dataclass(frozen=True, slots=True)
class ReportInstances(Message[tuple[StateStoreProviderId, ...]]):
    """The heartbeat of one host with all that it has loaded; answered with those that are active elsewhere."""

    host: HostId
    loaded: tuple[StateStoreProviderId, ...]


@dataclass(frozen=True, slots=True)
class ExecutorLost(Message[None]):
    """An executor is gone: drop what was loaded there."""

    executor_id: str


@dataclass(frozen=True, slots=True)
class StartRun(Message[None]):
    """A run of the query at this checkpoint begins; older runs may not commit from now on."""

    checkpoint_root: str
    run_id: UUID


@dataclass(frozen=True, slots=True)
class OpenStore(Message[Grant]):
    """An attempt opens a version of a store for writing; ``Fenced`` when it comes too late to."""

    provider_id: StateStoreProviderId
    version: int
    attempt: Attempt
    host: HostId


@dataclass(frozen=True, slots=True)
class MayCommit(Message[None]):
    """Whether the holder of this grant may publish now; ``Fenced`` means no."""

    incarnation: str
    sequence: int


@dataclass(frozen=True, slots=True)
class ReportCommit(Message[None]):
    """The holder of this grant published the version after the one it opened."""

    incarnation: str
    sequence: int
    identity: str | None
    """Identity of the published version; None from a provider that has none."""
    metrics: dict[str, int]


@dataclass(frozen=True, slots=True)
class Release(Message[None]):
    """The holder of this grant gave up its store without publishing."""

    incarnation: str
    sequence: int


@dataclass(frozen=True, slots=True)
class StartCommitTracking(Message[None]):
    """A batch begins: these stores have to commit before it is complete."""

    run_id: UUID
    batch_id: int
    expected: dict[int, dict[str, int]]
    """Number of partitions by store name by operator id."""


@dataclass(frozen=True, slots=True)
class ValidateCommits(Message[None]):
    """Whether every store of the batch committed; an error lists those that did not."""

    run_id: UUID
    batch_id: int


@dataclass(frozen=True, slots=True)
class ReportSnapshotUploaded(Message[None]):
    """A snapshot of this version was written; sent one-way."""

    provider_id: StateStoreProviderId
    version: int
