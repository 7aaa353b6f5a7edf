"""The connection to Redis: how it is made, and what its errors mean."""

from __future__ import annotations

import re
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from holdfast.errors import CorruptState, IllegalState, InvalidRequest, InvalidSetting, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast_redis.settings import RedisSettings

_RETRIES = 3
_PASSING = re.compile(r"(^|: )(BUSY|LOADING|MISCONF|NOREPLICAS)\b")
"""How Redis says that it cannot do something now, where redis-py has no type for it."""

_PASSING_TYPES = (
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
)


class Server:
    """One Redis, as one provider talks to it."""

    def __init__(self, settings: RedisSettings) -> None:
        self.url = settings.checked_url()
        self._is_closed = False
        self._client = redis.Redis.from_url(
            self.url,
            username=settings.username,
            password=settings.password,
            socket_timeout=settings.timeout,
            socket_connect_timeout=settings.timeout,
            # Repeating is safe: everything that is sent has the same effect the second time.
            retry=Retry(ExponentialBackoff(cap=1.0, base=0.05), _RETRIES),
            protocol=2,
            **settings.tls_options(),
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """The one place where foreign exceptions become ours, sorted by what the caller can do."""
        try:
            yield
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
            raise InvalidSetting(
                f"Redis at {self.url} refuses the user: {error}; set spark.holdfast.redis.username and"
                " spark.holdfast.redis.password"
            ) from error
        except (redis.ConnectionError, redis.TimeoutError) as error:
            if isinstance(error.__context__, ssl.SSLCertVerificationError):
                raise InvalidSetting(
                    f"Redis at {self.url} is not trusted: {error.__context__}; set spark.holdfast.redis.tlsCaFile"
                ) from error
            raise Unavailable(f"Redis at {self.url} does not answer: {error}") from error
        except redis.ResponseError as error:
            if "WRONGTYPE" in str(error):
                raise CorruptState(
                    f"Redis at {self.url} has something else under a name of this store: {error}; choose another"
                    " spark.holdfast.redis.namespace"
                ) from error
            if isinstance(error, _PASSING_TYPES) or _PASSING.search(str(error)):
                raise Unavailable(f"Redis at {self.url} cannot do this now: {error}") from error
            raise InvalidRequest(f"Redis at {self.url} refuses: {error}") from error

    @property
    def client(self) -> Any:
        """redis-py's client."""
        if self._is_closed:
            raise IllegalState(f"the connection to Redis at {self.url} is closed with its provider")
        return self._client

    def refuse_eviction(self) -> None:
        """Refuse a Redis that throws state away when its memory is full."""
        with self.errors():
            try:
                memory = self.client.info("memory")
            except redis.exceptions.NoPermissionError:
                return  # whoever hides it must know
        policy = memory.get("maxmemory_policy", "noeviction")
        if memory.get("maxmemory") and policy.startswith("allkeys"):
            raise InvalidRequest(
                f"Redis at {self.url} removes keys when its memory is full (maxmemory-policy {policy}), and state would"
                " be lost; set maxmemory-policy to noeviction"
            )

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._client.close()
