"""Redis as a shared state backend of Holdfast."""

from holdfast_redis.provider import RedisStateStoreProvider
from holdfast_redis.settings import RedisSettings

__all__ = ["RedisSettings", "RedisStateStoreProvider"]
