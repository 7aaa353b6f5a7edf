"""What ``holdfast verify`` does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from holdfast.checkpoint.chain import delta_name, snapshot_name
from holdfast.checkpoint.checkpoint import READERS, in_parallel
from holdfast.checkpoint.failures import MissingFile
from holdfast.checkpoint.framing import decompress
from holdfast.checkpoint.records import decode_records
from holdfast.cli.progress import progress
from holdfast.errors import CorruptState, HoldfastError, InvalidRequest, InvalidSchema, UnsupportedOperation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.checkpoint.checkpoint import Checkpoint, Operator, Store


@dataclass
class Findings:
    """What was looked at, and what is wrong with it."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    operators: int = 0
    stores: int = 0
    files: int = 0
    bytes: int = 0
    records: int = 0


@dataclass(frozen=True)
class _File:
    store: Store
    name: str
    is_snapshot: bool
    row_checksums: bool

    @property
    def where(self) -> str:
        return f"{self.store.folder.shown}/{self.name}"

    def check(self) -> tuple[int, str | None]:
        """Read it; return how many records it has, and what is wrong."""
        try:
            data = decompress(self.store.folder.read(self.name), self.where)
            keys, _ = decode_records(
                data, self.where, allow_removed=not self.is_snapshot, row_checksums=self.row_checksums
            )
        except MissingFile as error:
            # A running query cleans up behind itself. A name that is still listed is another matter.
            return 0, str(error) if self.name in self.store.folder.list() else None
        except HoldfastError as error:
            return 0, str(error) if self.where in str(error) else f"{self.where}: {error}"
        return len(keys), None


def verify(checkpoint: Checkpoint) -> Findings:
    """Check every file of every chain, and that the chains are whole and fit together."""
    found = Findings()
    files: list[_File] = []
    found.problems += checkpoint.batches.damaged
    for operator in checkpoint.operators:
        found.operators += 1
        found.problems += _metadata_problems(operator, found)
        row_checksums = _row_checksums(checkpoint, operator)
        for store in operator.stores:
            if store.is_rocksdb:
                continue
            found.stores += 1
            files += _files(store, row_checksums)
            found.problems += _holes(store)
        found.problems += _missing_stores(operator)
        found.problems += _lags(checkpoint, operator)
        found.problems += _schema_problems(operator, found)
        if any(store.is_rocksdb for store in operator.stores):
            found.notes.append(f"operator {operator.id} keeps its state in RocksDB, which is not checked")
    if not files and not found.problems:
        raise InvalidRequest(
            f"there is nothing in {checkpoint.shown} that could be checked: no operator has delta or snapshot files"
        )
    with progress("checking files", len(files)) as done:
        results = in_parallel(_File.check, files, done, workers=READERS)
    for file, (records, problem) in zip(files, results, strict=True):
        found.files += 1
        found.bytes += file.store.files[file.name]
        found.records += records
        if problem is not None:
            found.problems.append(problem)
    return found


def _files(store: Store, row_checksums: bool) -> Iterator[_File]:
    names = {snapshot_name(version): True for version in sorted(store.chain.snapshots)}
    names |= {delta_name(version): False for version in sorted(store.chain.deltas)}
    return (_File(store, name, kind, row_checksums) for name, kind in names.items() if name in store.files)


def _holes(store: Store) -> Iterator[str]:
    for hole in store.holes:
        versions = f"version {hole[0]}" if hole.start + 1 == hole.stop else f"versions {hole[0]} to {hole[-1]}"
        yield (
            f"{store.folder.shown}: {versions} cannot be loaded: {delta_name(hole[0])} is missing, and no snapshot"
            " stands in for it"
        )


def _missing_stores(operator: Operator) -> Iterator[str]:
    try:
        partitions = operator.missing_partitions
    except CorruptState:
        partitions = []  # reported with the metadata
    for partition in partitions:
        yield f"{operator.folder.shown}/{partition}: the partition is missing"
    for name in operator.store_names:
        for partition in operator.without_store(name):
            yield f"{operator.folder.shown}/{partition}: there are no files of store {name}, which others have"


def _lags(checkpoint: Checkpoint, operator: Operator) -> Iterator[str]:
    stores = [store for store in operator.stores if not store.is_rocksdb]
    commits = checkpoint.batches.commits
    newest = max((store.chain.newest for store in stores), default=0)
    # A batch that was interrupted has its version in some partitions only; Spark runs it again.
    least = max(commits) + 1 if commits else newest - 1
    because = f"batch {max(commits)} is committed" if commits else f"others have version {newest}"
    for store in stores:
        if store.chain.newest < least:
            yield (
                f"{store.folder.shown}: the newest version is {store.chain.newest}, but {because}:"
                f" {delta_name(store.chain.newest + 1)} is missing"
            )
    if commits and newest > max(commits) + 2:
        yield (
            f"{operator.folder.shown}: there is version {newest}, but the newest committed batch is {max(commits)},"
            f" which makes version {max(commits) + 1}; a rollback was not finished, or the log of commits is not whole"
        )


def _metadata_problems(operator: Operator, found: Findings) -> Iterator[str]:
    try:
        if kind := operator.kept_elsewhere:
            found.notes.append(f"operator {operator.id} is of kind {kind}: its state is elsewhere and not checked")
    except HoldfastError as error:
        yield str(error)
    try:
        operator.spark  # noqa: B018 -- read for its errors
    except HoldfastError as error:
        yield str(error)


def _schema_problems(operator: Operator, found: Findings) -> Iterator[str]:
    for name in operator.store_names:
        try:
            operator.schema(name)
        except (InvalidSchema, UnsupportedOperation) as error:
            found.notes.append(f"the rows of operator {operator.id}, store {name}, are not understood: {error}")
        except HoldfastError as error:
            yield str(error)


def _row_checksums(checkpoint: Checkpoint, operator: Operator) -> bool:
    try:
        return checkpoint.row_checksums(operator)
    except CorruptState:
        return False  # a damaged file of Holdfast's: then these are not Spark's


def report(found: Findings) -> bool:
    """Print the findings; returns whether all is well."""
    for note in dict.fromkeys(found.notes):
        click.echo(f"note: {note}")
    problems = list(dict.fromkeys(found.problems))
    for problem in problems:
        click.echo(f"{click.style('wrong', fg='red')}: {problem}")
    checked = (
        f"{_count(found.files, 'file')} ({found.bytes:,} bytes, {_count(found.records, 'record')}) of"
        f" {_count(found.stores, 'store')} of {_count(found.operators, 'operator')}"
    )
    if problems:
        click.echo(f"{_count(len(problems), 'problem')}; checked {checked}")
    else:
        click.echo(f"all is well; checked {checked}")
    return not problems


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
