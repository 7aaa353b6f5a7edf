"""RocksDB as a state backend of Holdfast."""

from holdfast_rocksdb.provider import RocksDBSettings, RocksDBStateStoreProvider

__all__ = ["RocksDBSettings", "RocksDBStateStoreProvider"]
