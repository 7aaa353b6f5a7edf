"""What a client and a host say to each other about one open store.

Each open store is one Flight exchange (a *session*), begun with ``OpenSession``. The client sends a ``Request`` with or
without a batch of rows; writes have no answer, everything else is answered by one ``Answer``, or by several of which
only the last is not ``more``. A write that fails makes the next answer an error. While a commit is under way the host
may answer ``ask``: the client then says ``go`` or ``stop``. Scans are separate streams (``Scan``), so that a store can
be used while one is read. A session that ends without ``commit`` is aborted, for whatever reason it ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from holdfast.contract.metrics import MetricKind, StateStoreCustomMetric, StateStoreMetrics
from holdfast.ids import StateStoreProviderId
from holdfast.rpc.address import Address
from holdfast.rpc.failures import Failure
from holdfast.rpc.messages import Attempt, Message

ROWS = pa.schema([("key", pa.binary()), ("value", pa.binary())])
"""Both directions of a session, and scans."""

BATCH_BYTES = 16 * 1024**2
"""Rows of one message, roughly: enough to make a message's cost vanish, little enough to hold twice."""


@dataclass(frozen=True, slots=True)
class HostConfig:
    """What a host is started with; comes over its standard input, where no other user can read it."""

    base: str
    name: str
    """Its ``HostPlace``."""

    token: str = field(repr=False)
    """What clients have to show."""

    executor_id: str
    host_name: str
    executor_pid: int | None
    """The process without which it has no reason to be; ``None`` only where nobody could know."""

    coordinator: Address | None
    """The driver; ``None`` where clients bring their own guards."""

    conf: dict[str, str]
    """``spark.holdfast.*`` and the keys of ``StateStoreConf``."""


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Opens one version of one store."""

    provider_id: StateStoreProviderId
    version: int
    key_schema: bytes
    """As Arrow writes it."""

    value_schema: bytes
    key_index_ordinal: int | None
    conf: dict[str, str]
    fs_options: str
    """JSON."""

    writable: bool
    attempt: Attempt | None = None
    """Whose work this is; the driver's permission goes by it."""

    start_empty: bool = False
    """Whether a store without any state begins with this version."""

    identity: str | None = None
    """What the client knows the version to be; a driver that gives permission knows better."""

    ask_client: bool = False
    """Whether the client's own guard gives the permission to publish, instead of the driver."""


class Do(Enum):
    """What a client asks for in a session."""

    GET = "get"
    PUT = "put"
    REMOVE = "remove"
    METRICS = "metrics"
    COMMIT = "commit"
    ABORT = "abort"
    GO = "go"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Request:
    """One step of a session."""

    do: Do
    counts: dict[str, int] = field(default_factory=dict)
    """With ``COMMIT``: what the task counted, for the driver."""

    error: Failure | None = None
    """With ``STOP``: why the client's guard says so."""


@dataclass(frozen=True, slots=True)
class CustomMetric:
    """One custom metric with its value."""

    name: str
    description: str
    kind: MetricKind
    value: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """``StateStoreMetrics`` as a message."""

    num_keys: int
    memory_used_bytes: int
    custom: tuple[CustomMetric, ...]

    @classmethod
    def of(cls, metrics: StateStoreMetrics) -> "Metrics":
        """Pack."""
        custom = (CustomMetric(m.name, m.description, m.kind, value) for m, value in metrics.custom_metrics.items())
        return cls(metrics.num_keys, metrics.memory_used_bytes, tuple(custom))

    def unpack(self) -> StateStoreMetrics:
        """Unpack."""
        custom = {StateStoreCustomMetric(m.name, m.description, m.kind): m.value for m in self.custom}
        return StateStoreMetrics(self.num_keys, self.memory_used_bytes, custom)


@dataclass(frozen=True, slots=True)
class Answer:
    """The host's answer; fields that do not concern the request are empty."""

    more: bool = False
    ask: bool = False
    version: int | None = None
    identity: str | None = None
    metrics: Metrics | None = None
    session: str | None = None
    """Names a newly opened session for scans."""

    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class RunMaintenance(Message[None]):
    """Maintain a provider now instead of at the next interval, and wait for it; before a planned stop, say."""

    provider_id: StateStoreProviderId


class ScanKind(Enum):
    """Which pairs a scan gives."""

    ALL = "all"
    RANGE = "range"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class Scan:
    """Asks for a stream of pairs of an open store."""

    session: str
    kind: ScanKind
    start: bytes | None = None
    """Lower bound, or the prefix."""

    end: bytes | None = None
    columns: int | None = None


def slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut ``rows`` into batches of about ``BATCH_BYTES``; at least one, even of nothing."""
    if rows.num_rows < 2 or rows.nbytes <= BATCH_BYTES:
        yield rows
        return
    middle = rows.num_rows // 2
    yield from slices(rows.slice(0, middle))
    yield from slices(rows.slice(middle))
