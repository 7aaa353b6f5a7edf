"""State in LMDB on the executor's disk, over the log: larger than memory, and warm after a restart."""

from holdfast_lmdb.provider import LmdbStateStoreProvider

__all__ = ["LmdbStateStoreProvider"]
