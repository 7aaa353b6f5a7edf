"""Where on the local disk a store's database is, and how it is opened."""

from __future__ import annotations

import logging
import shutil
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

    def take(self) -> Rdict:
        """Open the first database that nobody uses; one that cannot be opened is made anew."""
        for number in range(_MOST_AT_ONCE):
            self.path = self._folder / f"{number}.rocksdb"
            database = self._open(self.path)
            if database is not None:
                return database
        raise InvalidRequest(
            f"RocksDB cannot lock any of the {_MOST_AT_ONCE} databases in {self._folder}: either all are in use, or the"
            " filesystem has no locks; set spark.holdfast.rocksdb.localDir to a folder on a local disk"
        )

    def _open(self, path: Path) -> Rdict | None:
        """The database, or ``None`` if another provider, in this process or another, has it open."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidRequest(
                f"RocksDB cannot use {path}: {error}; set spark.holdfast.rocksdb.localDir to a folder that can be"
                " written to"
            ) from error
        try:
            return Rdict(str(path), self._options)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            if _is_in_use(error):
                return None
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


def _is_in_use(error: Exception) -> bool:
    # RocksDB's file LOCK says so, to this process and to others; rocksdict has no type of its own for it.
    return "/LOCK: " in str(error)


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
