"""A whole checkpoint of a query, for tools that look at it: operators, partitions, stores, and Spark's logs of batches.

Nothing here writes. State that Spark wrote and state that Holdfast wrote look the same, except where their metadata is.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.checkpoint.chain import Chain
from holdfast.checkpoint.failures import MissingFile, Patience
from holdfast.checkpoint.log import CheckpointLog, apply_changes
from holdfast.checkpoint.metadata import OperatorMetadata, read_operator
from holdfast.checkpoint.schema_files import METADATA_FOLDER, StateSchema, read_state_schema, refuse_column_families
from holdfast.checkpoint.storage import Folder
from holdfast.conf import STATE_STORE_PREFIX
from holdfast.contract.capabilities import Capability
from holdfast.errors import CorruptState, InvalidRequest
from holdfast.ids import DEFAULT_STORE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.checkpoint.log import Piece

T = TypeVar("T")
R = TypeVar("R")

STATE_FOLDER = "state"
OFFSETS_FOLDER = "offsets"
COMMITS_FOLDER = "commits"
SPARK_METADATA_FILE = "metadata"

ROW_CHECKSUMS = STATE_STORE_PREFIX + "rowChecksum.enabled"
PROVIDER_CLASS = STATE_STORE_PREFIX + "providerClass"

FIRST_HOLDFAST_OPERATOR = 1000
"""Operators of Holdfast have ids from here on; Spark's own begin at 0."""

PARALLEL = 16
"""Folders looked at at a time."""

READERS = 4
"""Files or versions read at a time: a snapshot is in memory as a whole."""

MOST_MISSING = 100
"""Missing partitions that are named."""

_NUMBER = re.compile(r"\d+", re.ASCII)
_ROCKSDB = re.compile(r"\d+(_[^.]+)?\.(zip|changelog)", re.ASCII)


def in_parallel(
    action: Callable[[T], R], things: Sequence[T], done: Callable[[], None] = lambda: None, *, workers: int = PARALLEL
) -> list[R]:
    """Do the same to many things, several at a time; ``done`` is called after each."""
    results = []
    with ThreadPoolExecutor(workers, "holdfast-checkpoint") as pool:
        try:
            for result in pool.map(action, things):
                results.append(result)
                done()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


@dataclass(frozen=True)
class Store:
    """One store of one partition, as its folder was when it was listed."""

    operator: int
    partition: int
    name: str
    folder: Folder
    files: Mapping[str, int]
    """Name and size of everything directly in the folder."""

    @property
    def is_rocksdb(self) -> bool:
        """Whether Spark keeps it with RocksDB, whose files Holdfast does not read."""
        return any(_ROCKSDB.fullmatch(name) for name in self.files)

    @cached_property
    def chain(self) -> Chain:
        """The files of the log."""
        return Chain.of(self.files)

    @cached_property
    def readable(self) -> list[int]:
        """Every version that has all its files, in order; not 0, which is empty and needs none."""
        found: set[int] = set()
        for version in sorted(self.chain.deltas | self.chain.snapshots):
            if version in self.chain.snapshots or version == 1 or version - 1 in found:
                found.add(version)
        return sorted(found)

    @property
    def holes(self) -> list[range]:
        """The versions that cannot be loaded, though an older one can and there are newer files."""
        if not self.readable:
            return [range(1, self.chain.newest + 1)] if self.chain.newest else []
        ends = [*self.readable, self.chain.newest + 1]
        return [range(before + 1, after) for before, after in pairwise(ends) if after > before + 1]

    def can_load(self, version: int) -> bool:
        """Whether all files of a version are there; what is in them is not looked at."""
        return version == 0 or version in self.readable

    def state(self, version: int, *, row_checksums: bool = False) -> dict[bytes, bytes]:
        """Load what the store holds in a version, keys in the order of the files."""
        state: dict[bytes, bytes] = {}
        for piece in self.pieces(version, row_checksums=row_checksums):
            apply_changes(state, piece.keys, piece.values)
        return state

    def pieces(self, version: int, *, row_checksums: bool = False) -> Iterator[Piece]:
        """Read the files that make a version, in the order in which they apply."""
        if version == 0:
            return iter(())
        return CheckpointLog(self.folder, "lz4", row_checksums=row_checksums).load(version)

    @property
    def newest_readable(self) -> int:
        """The newest version that has all its files; 0 if none has."""
        return max(self.readable, default=0)

    def __str__(self) -> str:
        named = "" if self.name == DEFAULT_STORE_NAME else f", store {self.name}"
        return f"operator {self.operator}, partition {self.partition}{named}"


@dataclass(frozen=True)
class SparkOperator:
    """What Spark noted about an operator of its own."""

    name: str
    partitions: int
    """What the session was set to; operators that need all rows in one place use only the first."""


@dataclass(frozen=True)
class Operator:
    """One stateful operator of the query."""

    id: int
    folder: Folder
    partitions: tuple[int, ...]
    """Those that have a folder."""
    stores: tuple[Store, ...]
    """Those that have files, by partition and name."""

    @property
    def store_names(self) -> list[str]:
        """The names of all stores that any partition has, the default one first."""
        return sorted({store.name for store in self.stores}, key=lambda name: (name != DEFAULT_STORE_NAME, name))

    def named(self, name: str) -> list[Store]:
        """The stores of that name, by partition."""
        return [store for store in self.stores if store.name == name]

    @property
    def kept_elsewhere(self) -> str | None:
        """The kind of provider, if the state is not in this checkpoint."""
        kind = None if self.holdfast is None else self.holdfast.kind
        return None if kind in {None, Capability.LOG.name} else kind

    def without_store(self, name: str) -> list[int]:
        """The partitions that have a folder and no files of that store."""
        return sorted({*self.partitions} - {store.partition for store in self.named(name)})

    @cached_property
    def holdfast(self) -> OperatorMetadata | None:
        """What Holdfast noted about the operator; CorruptState if that cannot be read."""
        return read_operator(self.folder)

    @cached_property
    def spark(self) -> SparkOperator | None:
        """What Spark noted about the operator; CorruptState if that cannot be read."""
        try:
            data = self.folder.child(METADATA_FOLDER).read(SPARK_METADATA_FILE)
        except MissingFile:
            return None
        return decode_spark_operator(data, f"{self.folder.shown}/{METADATA_FOLDER}/{SPARK_METADATA_FILE}")

    def schema(self, name: str) -> StateSchema | None:
        """What a store holds; None where nothing tells it, as in checkpoints of Spark before 3.1."""
        refuse_column_families(self.folder)
        first = self.folder.child("0")
        found = read_state_schema(first if name == DEFAULT_STORE_NAME else first.child(name))
        if found is None and self.holdfast is not None:
            return self.holdfast.stores.get(name)
        return found

    @property
    def missing_partitions(self) -> list[int]:
        """The partitions that should be there and have no folder; not all, if they are very many."""
        present = set(self.partitions)
        if self.holdfast is not None:
            expected = 0 if self.kept_elsewhere else self.holdfast.partitions
        else:
            expected = max(self.partitions, default=-1) + 1
            # Partition 0 alone is an operator that needs all rows in one place: Spark's number is not its.
            if self.spark is not None and self.partitions != (0,):
                expected = max(expected, self.spark.partitions)
        # A damaged number could be in the billions: enough are named to see what is wrong.
        absent = (partition for partition in range(expected) if partition not in present)
        return list(islice(absent, MOST_MISSING))


@dataclass(frozen=True)
class Batches:
    """Spark's two logs: what each batch was to read, written before it ran, and which batches were completed."""

    offsets: frozenset[int] = frozenset()
    commits: frozenset[int] = frozenset()
    conf: Mapping[str, str] = field(default_factory=dict)
    """The configuration that Spark pinned when the query first ran."""
    damaged: tuple[str, ...] = ()
    """What is wrong with the newest entries of the log of offsets."""

    @property
    def row_checksums(self) -> bool:
        """Whether Spark's state stores put a checksum before each value."""
        return self.conf.get(ROW_CHECKSUMS, "").lower() == "true"


class Checkpoint:
    """A checkpoint on any filesystem that fsspec reaches. What was listed once is not listed again."""

    def __init__(self, state: Folder, root: Folder | None) -> None:
        self.state = state
        """The folder with the operators."""
        self.root = root
        """The folder with Spark's logs; None if only the state is known."""

    @classmethod
    def open(cls, url: str, fs_options: Mapping[str, Any] = {}, *, patience: Patience | None = None) -> Checkpoint:
        """Find the checkpoint at the folder of a query or at its folder ``state``; InvalidRequest if there is none."""
        patience = patience or Patience()
        folder = Folder.open(url, fs_options, patience=patience)
        inside = folder.folders()
        if STATE_FOLDER in inside:
            return cls(folder.child(STATE_FOLDER), folder)
        if any(map(_NUMBER.fullmatch, inside)):
            return cls(folder, _around(url, fs_options, patience))
        if {OFFSETS_FOLDER, COMMITS_FOLDER} & {*inside}:
            raise InvalidRequest(f"the query of {folder.shown} has no state: there is no folder {STATE_FOLDER!r}")
        raise InvalidRequest(
            f"there is no checkpoint in {folder.shown}: it has neither a folder {STATE_FOLDER!r} nor folders of"
            " operators; give the query's checkpointLocation, or the folder of its state"
        )

    @property
    def shown(self) -> str:
        """The place for messages; never holds a secret."""
        return (self.root or self.state).shown

    @cached_property
    def operators(self) -> list[Operator]:
        """Everything that has state, by id."""
        return [self._operator(number) for number in _numbers(self.state.folders())]

    def operator(self, number: int) -> Operator:
        """The operator with that id."""
        for operator in self.operators:
            if operator.id == number:
                return operator
        there = ", ".join(str(operator.id) for operator in self.operators) or "none"
        raise InvalidRequest(f"there is no operator {number} in {self.shown}; there are: {there}")

    @cached_property
    def batches(self) -> Batches:
        """Spark's logs; empty ones if only the state is known."""
        if self.root is None:
            return Batches()
        offsets = self.root.child(OFFSETS_FOLDER)
        numbers = _numbers(offsets.list())
        conf: dict[str, str] = {}
        damaged = []
        # Any entry will do, because Spark pins the configuration; a crash may have left the newest one torn.
        for number in reversed(numbers):
            try:
                conf = decode_offsets_conf(offsets.read(str(number)), f"{offsets.shown}/{number}")
                break
            except CorruptState as error:
                damaged.append(str(error))
        commits = _numbers(self.root.child(COMMITS_FOLDER).list())
        return Batches(frozenset(numbers), frozenset(commits), conf, tuple(damaged))

    def row_checksums(self, operator: Operator) -> bool:
        """Whether the values of an operator begin with a checksum: a matter of Spark's stores, never of ours."""
        return self.batches.row_checksums and operator.id < FIRST_HOLDFAST_OPERATOR and operator.holdfast is None

    def _operator(self, number: int) -> Operator:
        folder = self.state.child(str(number))
        partitions = _numbers(folder.folders())

        def stores(partition: int) -> list[Store]:
            return list(_stores(number, partition, folder.child(str(partition))))

        found = [store for group in in_parallel(stores, partitions) for store in group]
        return Operator(number, folder, tuple(partitions), tuple(found))


def _stores(operator: int, partition: int, folder: Folder) -> Iterable[Store]:
    folders = {DEFAULT_STORE_NAME: folder}
    folders |= {name: folder.child(name) for name in folder.folders() if not name.startswith(("_", "."))}
    for name, each in folders.items():
        store = Store(operator, partition, name, each, each.list())
        if store.chain.newest or store.chain.leftovers or store.chain.snapshots or store.is_rocksdb:
            yield store


def _around(url: str, fs_options: Mapping[str, Any], patience: Patience) -> Folder | None:
    """The folder around a folder ``state``, if Spark's logs are in it."""
    before, slash, last = url.rstrip("/").rpartition("/")
    if last != STATE_FOLDER:
        return None
    try:
        folder = Folder.open(before if slash else ".", fs_options, patience=patience)
    except InvalidRequest:
        return None
    return folder if {OFFSETS_FOLDER, COMMITS_FOLDER} & {*folder.folders()} else None


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name) and str(int(name)) == name)


def decode_offsets_conf(data: bytes, where: str) -> dict[str, str]:
    """Read the configuration in an entry of the log of offsets; Spark before 2.2 wrote none."""
    match _lines(data, where)[1:2]:
        case [dict(head)]:
            conf = head.get("conf", {})
            if isinstance(conf, dict):
                return {str(key): str(value) for key, value in conf.items()}
        case _:
            pass
    raise CorruptState(f"{where} is damaged: its second line has no configuration")


def decode_spark_operator(data: bytes, where: str) -> SparkOperator:
    """Read what Spark noted about an operator."""
    match _lines(data, where)[1:2]:
        case [{"operatorInfo": {"operatorName": str(name)}, "stateStoreInfo": list(stores)}]:
            numbers: list[Any] = [store.get("numPartitions") for store in stores if isinstance(store, dict)]
            if numbers and all(isinstance(number, int) and number > 0 for number in numbers):
                return SparkOperator(name, max(numbers))
        case _:
            pass
    raise CorruptState(f"{where} is damaged: it does not tell the operator's name and number of partitions")


def _lines(data: bytes, where: str) -> list[Any]:
    """The lines of one of Spark's files: its version, then JSON; ``-`` is an offset that is not there."""
    try:
        version, *lines = data.decode().splitlines()
        if not re.fullmatch(r"v\d+", version, re.ASCII):
            raise ValueError(f"it begins with {version[:20]!r} instead of a version")
        return [version, *(json.loads(line) for line in lines[:1])]
    except (ValueError, RecursionError) as error:
        raise CorruptState(f"{where} is damaged: {error}") from error
