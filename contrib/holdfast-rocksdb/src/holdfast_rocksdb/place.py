"""Where on the local disk a store's database is, who uses it, and how it is opened.

Beside a database ``<number>.rocksdb`` lies ``<number>.lock``, which its user holds. RocksDB's own lock is of no use to
those who only look: it is lost when the process that holds it closes any other handle on the file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from rocksdict import BlockBasedOptions, Cache, Options, Rdict

from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 64


class LocalPlace:
    """The folder of one store. It has room for several databases, of which each open provider uses one."""

    def __init__(self, folder: Path, *, block_cache_size: int, write_buffer_size: int, keep: bool) -> None:
        self._folder = folder
        self._keep = keep
        self._options = _options(block_cache_size, write_buffer_size)
        self.path: Path | None = None
        """The database that was taken."""
        self._lock: int | None = None

    def take(self) -> Rdict:
        """Open the first database that nobody uses; one that cannot be opened is made anew."""
        if self.path is not None:
            return self._open(self.path)  # again, after it was thrown away
        for number in range(_MOST_AT_ONCE):
            path = self._folder / f"{number}.rocksdb"
            self._lock = self._hold(path)
            if self._lock is not None:
                self.path = path
                return self._open(path)
        raise InvalidRequest(
            f"all of the {_MOST_AT_ONCE} databases in {self._folder} are in use;"
            " set spark.holdfast.rocksdb.localDir to another folder"
        )

    def _hold(self, path: Path) -> int | None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return _try_lock(path.with_suffix(".lock"))
        except OSError as error:
            raise InvalidRequest(
                f"RocksDB cannot use {path}: {error}; set spark.holdfast.rocksdb.localDir to a folder on a local disk"
                " that can be written to"
            ) from error

    def _open(self, path: Path) -> Rdict:
        try:
            return Rdict(str(path), self._options)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            log.warning("The RocksDB database %s cannot be opened and is made anew: %s", path, error)
        shutil.rmtree(path, ignore_errors=True)
        try:
            return Rdict(str(path), self._options)
        except Exception as error:
            raise InvalidRequest(
                f"RocksDB cannot use {path}: {error}; check the disk, or set spark.holdfast.rocksdb.localDir to"
                " another folder"
            ) from error

    def discard(self) -> None:
        """Delete the database that was taken."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)

    def leave(self) -> None:
        """Delete the database unless the next provider of this store shall find it."""
        if not self._keep:
            shutil.rmtree(self._folder, ignore_errors=True)
        elif self.path is not None and self.path.name != "0.rocksdb":
            # Others are there when several providers were open at once; the next one will take the first.
            self.discard()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep(local_dir: Path, unused_for: float) -> int:
    """Remove the databases below ``local_dir`` that nobody has used for so many seconds; returns how many."""
    removed = 0
    clock = local_dir / ".clock"
    try:
        clock.touch()
        # By the files' own times: the clock of this process may be another one than the disk's.
        now = clock.stat().st_mtime
    except OSError:
        return 0
    for path in list(local_dir.glob("*/*/*/*/*.rocksdb")):
        with suppress(OSError):
            if now - max(file.stat().st_mtime for file in (path, *path.iterdir())) >= unused_for:
                removed += _remove_unused(path, local_dir)
    return removed


def _remove_unused(path: Path, local_dir: Path) -> bool:
    lock = _try_lock(path.with_suffix(".lock"))
    if lock is None:
        return False
    try:
        shutil.rmtree(path)
        path.with_suffix(".lock").unlink()
        with suppress(OSError):  # until one has something else in it
            for folder in list(path.parents)[: len(path.relative_to(local_dir).parts) - 1]:
                folder.rmdir()
    finally:
        os.close(lock)
    return True


def _try_lock(path: Path) -> int | None:
    """Hold the lock, or ``None`` if another provider, in this process or another, does."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Locked, but perhaps no longer what the name means: somebody removed it in between.
        if os.fstat(opened).st_ino == path.stat().st_ino:
            return opened
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(opened)
        raise
    os.close(opened)
    return None


def _options(block_cache_size: int, write_buffer_size: int) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(Cache(block_cache_size))
    # State is asked for keys that are not there as often as for others.
    table.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(write_buffer_size)
    options.set_keep_log_file_num(2)
    return options
