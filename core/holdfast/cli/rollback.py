"""What ``holdfast rollback`` does: make batch N the newest that ever was.

Batch N made version N+1, so everything of versions above N+1 goes, and the entries above N of Spark's log of commits.
Of the log of offsets, the entry of batch N+1 stays: it says what that batch was to read, and Spark, which finds it
without a commit, runs the batch again with the same number on the same input. Entries above N+1 go: Spark runs the
newest one that it finds, and would skip those between. Their input is not lost; Spark plans it into batches anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from holdfast.checkpoint.checkpoint import COMMITS_FOLDER, OFFSETS_FOLDER, READERS, in_parallel
from holdfast.cli.progress import progress
from holdfast.errors import HoldfastError, InvalidRequest, MissingVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.checkpoint.checkpoint import Checkpoint, Operator, Store
    from holdfast.checkpoint.storage import Folder

# With the checksums beside them: Hadoop's on local disks begin with a dot, Spark's own do not. Files that were set
# aside stay: nobody reads them.
_STATE_FILE = re.compile(r"\.?(\d+)\.(delta|snapshot)(\.crc)?", re.ASCII)
_LOG_ENTRY = re.compile(r"\.?(\d+)(\.crc)?", re.ASCII)

SHOWN_PROBLEMS = 5


@dataclass(frozen=True)
class Removal:
    """Files of one folder that go, the highest number first."""

    folder: Folder
    names: list[str]


@dataclass(frozen=True)
class Plan:
    """Everything that goes, in the order in which it must.

    The log of offsets decides which batch Spark runs next, so its entries go last. Until then a query that somebody
    starts after a crash in the middle of this runs its newest batch M:

    - while commits go, the state is whole, and batch M runs again on version M;
    - once state goes, version M is there, and M runs again, or it is not, and the query stops with the name of the
      missing file. Snapshots go before deltas: one that stayed would be taken for a version that was made again;
    - once offsets go, highest first, the version that the newest of them needs is gone, until only N+1 is left.

    So nothing ever goes on from a mixture, and the same command again removes the rest: what it asks for at the start,
    batch N's commit and version N+1 of every store, is never touched.
    """

    batch: int
    commits: Removal
    snapshots: list[Removal]
    deltas: list[Removal]
    offsets: Removal
    replays: bool
    """Whether the log of offsets says what batch N+1 is to read."""

    @property
    def removals(self) -> list[Removal]:
        return [self.commits, *self.snapshots, *self.deltas, self.offsets]

    @property
    def files(self) -> list[str]:
        """Every file that goes."""
        return [f"{removal.folder.shown}/{name}" for removal in self.removals for name in removal.names]

    def carry_out(self) -> None:
        """Remove the files."""
        with progress("removing files", len(self.files)) as done:
            _one_by_one(self.commits, done)
            in_parallel(lambda removal: _together(removal, done), self.snapshots)
            in_parallel(lambda removal: _together(removal, done), self.deltas)
            _one_by_one(self.offsets, done)


def _one_by_one(removal: Removal, done: Callable[[], None]) -> None:
    for name in removal.names:
        removal.folder.remove([name])
        done()


def _together(removal: Removal, done: Callable[[], None]) -> None:
    removal.folder.remove(removal.names)
    for _ in removal.names:
        done()


def plan(checkpoint: Checkpoint, batch: int) -> Plan:
    """Find what goes; raise InvalidRequest or MissingVersion if the query could not go on from there."""
    if checkpoint.root is None:
        raise InvalidRequest(
            f"{checkpoint.shown} is the state alone; give the query's checkpointLocation, which has the folders"
            f" {OFFSETS_FOLDER!r} and {COMMITS_FOLDER!r}"
        )
    commits = checkpoint.batches.commits
    if batch not in commits:
        there = f"{min(commits)} to {max(commits)}" if commits else "none"
        raise InvalidRequest(f"batch {batch} is not committed in {checkpoint.shown}; committed batches: {there}")
    _refuse_unreadable(checkpoint, batch)
    commit_log, offset_log = (checkpoint.root.child(name) for name in (COMMITS_FOLDER, OFFSETS_FOLDER))
    return Plan(
        batch,
        Removal(commit_log, _above(commit_log.list(), _LOG_ENTRY, batch)),
        list(_of_state(checkpoint, batch, "snapshot")),
        list(_of_state(checkpoint, batch, "delta")),
        Removal(offset_log, _above(offset_log.list(), _LOG_ENTRY, batch + 1)),
        batch + 1 in checkpoint.batches.offsets,
    )


def _of_state(checkpoint: Checkpoint, batch: int, kind: str) -> Iterator[Removal]:
    for operator in checkpoint.operators:
        for store in operator.stores:
            names = [name for name in _above(store.files, _STATE_FILE, batch + 1) if f".{kind}" in name]
            if names:
                yield Removal(store.folder, names)


def _above(names: Mapping[str, int], pattern: re.Pattern[str], number: int) -> list[str]:
    """The names with a number above, the highest first; a checksum before its file, which is good without it."""
    found = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name)) and int(match[1]) > number]
    return [name for _, name in sorted(found, key=lambda each: (-each[0], not each[1].endswith(".crc"), each[1]))]


def _refuse_unreadable(checkpoint: Checkpoint, batch: int) -> None:
    """Refuse unless every store can be loaded as batch N left it: files are read, not only listed."""
    stores: list[tuple[Operator, Store]] = []
    for operator in checkpoint.operators:
        if any(store.is_rocksdb for store in operator.stores):
            raise InvalidRequest(
                f"operator {operator.id} of {checkpoint.shown} keeps its state in RocksDB, which Holdfast cannot roll"
                " back; nothing was removed"
            )
        if kind := operator.kept_elsewhere:
            raise InvalidRequest(
                f"operator {operator.id} of {checkpoint.shown} is of kind {kind}: its state is elsewhere and"
                " cannot be rolled back; nothing was removed"
            )
        lacking = [partition for name in operator.store_names for partition in operator.without_store(name)]
        if gone := sorted([*operator.missing_partitions, *lacking]):
            raise MissingVersion(f"{operator.folder.shown}/{gone[0]}: the partition is missing; nothing was removed")
        stores += ((operator, store) for store in operator.stores)

    def problem(each: tuple[Operator, Store]) -> str | None:
        operator, store = each
        try:
            if not store.can_load(batch + 1):
                there = f"{min(store.readable)} to {max(store.readable)}" if store.readable else "none"
                return f"version {batch + 1} of {store.folder.shown} ({store}) is not there; versions there: {there}"
            for _ in store.pieces(batch + 1, row_checksums=checkpoint.row_checksums(operator)):
                pass
        except HoldfastError as error:
            return f"version {batch + 1} of {store.folder.shown} ({store}) cannot be loaded: {error}"
        return None

    with progress(f"reading version {batch + 1}", len(stores)) as done:
        problems = [found for found in in_parallel(problem, stores, done, workers=READERS) if found is not None]
    if problems:
        more = f"; and {len(problems) - SHOWN_PROBLEMS} more" if len(problems) > SHOWN_PROBLEMS else ""
        raise MissingVersion(
            f"cannot roll back to batch {batch}, which makes version {batch + 1}, and nothing was removed:"
            f" {'; '.join(problems[:SHOWN_PROBLEMS])}{more}"
        )


def run(checkpoint: Checkpoint, batch: int, yes: bool) -> None:
    """List what goes and, if told so, remove it."""
    found = plan(checkpoint, batch)
    files = found.files
    if not files:
        click.echo(f"{checkpoint.shown} is at batch {batch}; there is nothing to remove")
        return
    for file in files:
        click.echo(f"{'remove' if yes else 'would remove'} {file}")
    _say_what_follows(found, checkpoint)
    if not yes:
        click.echo(f"dry run: {len(files)} files would be removed; with --yes they are")
        return
    found.carry_out()
    click.echo(f"removed {len(files)} files; batch {batch} is the newest")


def _say_what_follows(found: Plan, checkpoint: Checkpoint) -> None:
    following = found.batch + 1
    if found.replays:
        click.echo(f"kept {OFFSETS_FOLDER}/{following}: Spark runs batch {following} again on the same input", err=True)
    else:
        click.echo(f"there is no {OFFSETS_FOLDER}/{following}: Spark plans batch {following} anew", err=True)
    newest = max(checkpoint.batches.offsets | checkpoint.batches.commits)
    if newest > following:
        click.echo(
            f"warning: batches after {following} (so far up to {newest}) may get other input than before. A sink that"
            " recognises a batch by its number (files, Delta, foreachBatch with the batch id) has them already and"
            " would skip them: roll it back, too.",
            err=True,
        )
    click.echo("warning: the query must be stopped, here and everywhere, and stay so until this is done.", err=True)
