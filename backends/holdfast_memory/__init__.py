"""The reference backend: versions in this process's memory, no durability."""

from holdfast_memory.provider import MemoryStateStoreProvider

__all__ = ["MemoryStateStoreProvider"]
