"""One store's database: every change of every version, and which versions there are.

A row of ``entry`` says: from this version on, the key has this value (or none). The value of a key
at version V is that of its newest entry not above V, so opening an old version costs nothing and a
commit writes only what changed.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.errors import CorruptState, Fenced, IllegalState, InvalidRequest, MissingVersion, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

FORMAT = 1

_WAY_OUT = "give the checkpoint, or spark.holdfast.sqlite.directory, a folder that can be written to"

_SCHEMA = """
BEGIN;
CREATE TABLE entry (
    key BLOB NOT NULL, version INTEGER NOT NULL, value BLOB, PRIMARY KEY (key, version)
) WITHOUT ROWID;
CREATE INDEX entry_by_version ON entry (version);
CREATE TABLE version (number INTEGER PRIMARY KEY, identity TEXT NOT NULL, num_keys INTEGER NOT NULL);
INSERT INTO version VALUES (0, '', 0);
PRAGMA user_version = 1;
COMMIT;
"""

# An entry is visible at :version if no newer entry of its key is.
_VISIBLE = "version = (SELECT max(version) FROM entry AS newer WHERE newer.key = entry.key AND newer.version <= ?)"

_KEYS_PER_QUERY = 500


class Database:
    """Opens connections to one database file and turns SQLite's errors into Holdfast's."""

    def __init__(self, path: Path, *, timeout: float, synchronous: str) -> None:
        self.path = path
        self._timeout = timeout
        self._synchronous = synchronous

    def create(self) -> None:
        """Make the file and its tables unless they are there."""
        try:
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._create_whole()
        except OSError as error:
            raise InvalidRequest(f"SQLite database {self.path} cannot be used: {error}; {_WAY_OUT}") from error
        with self.errors():
            connection = self.connect()
            try:
                (found,) = connection.execute("PRAGMA user_version").fetchone()
            finally:
                connection.close()
        if found != FORMAT:
            raise CorruptState(
                f"{self.path} has format {found}, this version of holdfast-sqlite reads {FORMAT};"
                " install the version that wrote it, or use a new checkpoint"
            )

    def _create_whole(self) -> None:
        # Under another name first: two processes that set up one file at once are in each other's way, and a crash
        # would leave half a database.
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            with self.errors():
                connection = sqlite3.connect(draft, isolation_level=None)
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.executescript(_SCHEMA)
                finally:
                    connection.close()
            with suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)

    def connect(self) -> sqlite3.Connection:
        """A new connection in autocommit mode; transactions are begun by hand."""
        # A store may be opened in one thread and used in another, though never in two at once.
        connection = sqlite3.connect(self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """The one place where foreign exceptions become ours, sorted by what the caller can do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if any(reason in str(error) for reason in ("unable to open", "readonly")):
                raise InvalidRequest(f"SQLite database {self.path} cannot be used: {error}; {_WAY_OUT}") from error
            if "no such" in str(error):
                raise CorruptState(f"{self.path} is not a database of holdfast-sqlite: {error}") from error
            raise Unavailable(f"SQLite database {self.path}: {error}") from error
        except sqlite3.ProgrammingError as error:
            raise IllegalState(f"SQLite database {self.path}: the store is no longer open: {error}") from error
        except (sqlite3.DataError, OverflowError) as error:
            raise InvalidRequest(f"SQLite database {self.path} cannot hold this row: {error}") from error
        except sqlite3.DatabaseError as error:
            raise CorruptState(
                f"SQLite database {self.path} is damaged: {error};"
                " restore it from a backup, or start from a new checkpoint"
            ) from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A write transaction, committed at the end of the block and rolled back by any exception."""
        with self.errors():
            connection = self.connect()
        try:
            with self.errors():
                connection.execute("BEGIN IMMEDIATE")
            yield connection
            with self.errors():
                connection.execute("COMMIT")
        finally:
            # Closing rolls back whatever was not committed.
            connection.close()

    def publish(
        self,
        base: int,
        base_identity: str,
        changes: Iterable[tuple[bytes, bytes | None]],
        num_keys: int,
        ask: Callable[[], None],
    ) -> str:
        """Make version ``base + 1`` and return its identity; ``ask`` is called when only the commit is left to do."""
        with self.write() as connection:
            with self.errors():
                found = connection.execute("SELECT identity FROM version WHERE number = ?", (base,)).fetchone()
                if found is None or found[0] != base_identity:
                    raise Fenced(f"version {base} in {self.path} was made again or removed while this store was open")
                connection.execute("DELETE FROM entry WHERE version > ?", (base,))
                connection.execute("DELETE FROM version WHERE number > ?", (base,))
                connection.executemany(
                    "INSERT INTO entry VALUES (?, ?, ?)", ((key, base + 1, value) for key, value in changes)
                )
                identity = secrets.token_hex(8)
                connection.execute("INSERT INTO version VALUES (?, ?, ?)", (base + 1, identity, num_keys))
            ask()
        return identity

    def forget_old_versions(self, retain: int) -> None:
        """Remove all but the newest ``retain`` versions, and every entry that none of these shows."""
        with self.write() as connection, self.errors():
            (newest,) = connection.execute("SELECT max(number) FROM version").fetchone()
            oldest = newest - retain + 1
            connection.execute("DELETE FROM version WHERE number < ? AND number > 0", (oldest,))
            connection.execute(
                "DELETE FROM entry WHERE version < :oldest AND EXISTS (SELECT 1 FROM entry AS newer"
                " WHERE newer.key = entry.key AND newer.version > entry.version AND newer.version <= :oldest)",
                {"oldest": oldest},
            )
            connection.execute("DELETE FROM entry WHERE value IS NULL AND version <= ?", (oldest,))


class Snapshot:
    """One version, read inside one read transaction: what others commit meanwhile is not seen."""

    def __init__(self, database: Database, version: int) -> None:
        self._database = database
        self._version = version
        with database.errors():
            self._connection = database.connect()
            try:
                self._connection.execute("BEGIN")
                query = "SELECT identity, num_keys FROM version WHERE number = ?"
                found = self._connection.execute(query, (version,)).fetchone()
                if found is None:
                    there = self._connection.execute("SELECT min(number), max(number) FROM version WHERE number > 0")
                    oldest, newest = there.fetchone()
                    kept = "it has no version yet" if newest is None else f"it has {oldest} to {newest}"
                    raise MissingVersion(f"version {version} is not in {database.path}: {kept}")
            except BaseException:
                self._connection.close()
                raise
        self.identity: str = found[0]
        self.num_keys: int = found[1]

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """The values of those ``keys`` that are there."""
        found: dict[bytes, bytes] = {}
        with self._database.errors():
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                chunk = keys[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(chunk))
                query = f"SELECT key, value FROM entry WHERE key IN ({marks}) AND {_VISIBLE} AND value IS NOT NULL"  # noqa: S608
                found.update(self._connection.execute(query, (*chunk, self._version)))
        return found

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """All pairs."""
        with self._database.errors():
            query = f"SELECT key, value FROM entry WHERE {_VISIBLE} AND value IS NOT NULL"  # noqa: S608
            yield from self._connection.execute(query, (self._version,))

    def close(self) -> None:
        """End the transaction."""
        self._connection.close()
