"""State in memory over the log: HDFS-style delta and snapshot files on any filesystem."""

from holdfast_files.provider import HDFSBackedStateStoreProvider

__all__ = ["HDFSBackedStateStoreProvider"]
