"""Holdfast state stores in SQLite databases."""

from holdfast_sqlite.provider import SqliteSettings, SqliteStateStoreProvider

__all__ = ["SqliteSettings", "SqliteStateStoreProvider"]
