"""What a storage error means: gone, worth another try, or final; and how to say it without a secret.

The libraries behind fsspec are optional, so their errors are recognised by name and by the HTTP status they carry,
never by importing them. What the libraries retry by themselves: gcsfs six times, about half a minute; s3fs and botocore
nothing, because ``filesystems`` turns that off. `Patience` bounds the sum, whatever a library does inside one attempt.
"""

from __future__ import annotations

import errno
import logging
import random
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.checkpoint.urls import redact_urls
from holdfast.errors import HoldfastError, MissingVersion, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_log = logging.getLogger(__name__)
_random = random.Random()  # noqa: S311 -- spreads pauses, protects nothing

TRANSIENT_CODES = frozenset(
    {
        "ConditionalRequestConflict",
        "InternalError",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    }
)
"""S3 error codes that say "later"; some come with status 400."""

TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

TRANSIENT_TYPES = frozenset(
    {
        "aiohttp.client_exceptions.ClientConnectionError",
        "aiohttp.client_exceptions.ClientPayloadError",
        "asyncio.exceptions.TimeoutError",  # not the built-in one before Python 3.11
        "botocore.exceptions.ConnectionError",
        "botocore.exceptions.HTTPClientError",
        "botocore.parsers.ResponseParserError",  # a proxy in trouble answers with something that is not XML
        "builtins.ConnectionError",
        "builtins.KeyError",  # memory: a file went away while the folder was listed
        "builtins.TimeoutError",
        "google.auth.exceptions.TransportError",
        "requests.exceptions.ChunkedEncodingError",
        "requests.exceptions.ConnectionError",  # gcsfs makes a ProxyError of every 502
        "requests.exceptions.Timeout",
        "urllib3.exceptions.IncompleteRead",
    }
)

TRANSIENT_ERRNO = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ESTALE, errno.ETIMEDOUT}
)

SECRET_OPTION = re.compile(r"secret|passw|token|key|credential|sas|auth|signature|connection_string", re.IGNORECASE)
NO_SECRETS = frozenset({"anon", "anonymous", "browser", "cache", "cloud", "google_default"})
"""Words that options like gcsfs's ``token`` take instead of a secret."""


_GCS_BUCKET = re.compile(r"b/[^/]+/o")
"""All that gcsfs says when there is no such bucket: the path that it asked for."""


_JAVA_STACK = re.compile(r"(?:\n|\\n)(?:\t|\\t)at [\w.$]+\(.*", re.DOTALL)
"""Where a Java server goes on with the methods that it was in; as it is, or quoted once more."""


class MissingFile(MissingVersion):
    """The file is not there."""


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it, the outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def store_code(error: BaseException) -> str:
    """Return the code in a botocore error, such as ``NoSuchBucket``, or nothing."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, Mapping) else ""


def http_status(error: BaseException) -> int | None:
    """Return the status that an HTTP error of any of the libraries carries."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        places = ((error, "status_code"), (error, "status"), (error, "code"), (response, "status_code"))
        found = next((value for thing, name in places if (value := getattr(thing, name, None)) is not None), None)
    return int(found) if isinstance(found, int) or (isinstance(found, str) and found.isdigit()) else None


def is_transient(error: BaseException) -> bool:
    """Tell whether the same call may succeed in a moment."""
    links = list(chain(error))
    if any(isinstance(link, (ssl.SSLCertVerificationError, PermissionError, FileNotFoundError)) for link in links):
        return False
    if any(store_code(link) in TRANSIENT_CODES for link in links):
        return True
    statuses = [status for link in links if (status := http_status(link)) is not None]
    if statuses:
        return statuses[0] in TRANSIENT_STATUS
    return any(
        TRANSIENT_TYPES & {f"{kind.__module__}.{kind.__qualname__}" for kind in type(link).__mro__}
        or (isinstance(link, OSError) and link.errno in TRANSIENT_ERRNO)
        for link in links
    )


def is_absent(error: BaseException) -> bool:
    """Tell whether the file is not there, in a bucket that is."""
    if not isinstance(error, FileNotFoundError) or _GCS_BUCKET.fullmatch(str(error)):
        return False
    return all(store_code(link) != "NoSuchBucket" for link in chain(error))


def is_taken(error: BaseException) -> bool:
    """Tell whether a write on the condition that there is no such file found one.

    s3fs has a FileExistsError only for servers that name the condition in their answer.
    """
    return any(
        isinstance(link, FileExistsError) or http_status(link) == HTTPStatus.PRECONDITION_FAILED
        for link in chain(error)
    )


def is_unknown_condition(error: BaseException) -> bool:
    """Tell whether a conditional write failed because the store, or an early version of its package, has none."""
    return any(
        isinstance(link, TypeError)
        or type(link).__name__ == "ParamValidationError"  # botocore's, of a parameter that it does not know
        or http_status(link) == HTTPStatus.NOT_IMPLEMENTED
        for link in chain(error)
    )


def secrets_in(options: Mapping[str, Any], inherited: bool = False) -> Iterator[str]:
    """Yield every value of an option whose name sounds like a secret, nested ones included."""
    for name, value in options.items():
        secret = inherited or SECRET_OPTION.search(str(name)) is not None
        if isinstance(value, Mapping):
            yield from secrets_in(value, secret)
        elif secret and isinstance(value, (str, bytes)):
            text = value.decode(errors="replace") if isinstance(value, bytes) else value
            if text and text not in NO_SECRETS:
                yield text


class Redactor:
    """Takes the secrets of one filesystem's options out of any text."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        # The longest first: one secret may begin with another.
        self._secrets = sorted(set(secrets_in(options)), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return redact_urls(text)

    def explain(self, error: BaseException) -> str:
        """Return the store's own message."""
        text = " ".join(_JAVA_STACK.sub("", str(error)).split())
        return self(f"{type(error).__name__}: {text}" if text else type(error).__name__)

    def may_show(self, error: BaseException) -> bool:
        """Tell whether a traceback of this error shows no secret."""
        return all(self(str(link)) == str(link) for link in chain(error))


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to go on when a store says "later"."""

    attempts: int = 5
    """Calls in all."""
    first_pause: float = 0.25
    """Seconds before the second call; each later pause is three times as long. About 10 s in all."""
    total: float = 20.0
    """Seconds after which no further call begins: a library may have spent them retrying on its own."""
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def call(
        self, doing: str, action: Callable[[], T], redact: Redactor, before: Callable[[], None], absent: bool
    ) -> T:
        """Run ``action``, again while its errors are transient, and translate the last one.

        ``before`` is called ahead of each attempt; its errors are the caller's own and pass as they are.
        With ``absent``, a file that is not there is a `MissingFile`; without, that is a failure like others.
        """
        began = self.clock()
        for attempt in range(1, self.attempts + 1):
            before()
            try:
                return action()
            except HoldfastError:
                raise
            except Exception as error:  # noqa: BLE001 -- whatever a filesystem raises is translated here
                last = attempt == self.attempts or self.clock() - began >= self.total or not is_transient(error)
                if last:
                    kind = MissingFile if absent and is_absent(error) else Unavailable
                    shown = error if redact.may_show(error) else None
                    raise kind(f"cannot {redact(doing)}: {redact.explain(error)}") from shown
                pause = self.first_pause * 3 ** (attempt - 1) * _random.uniform(0.75, 1.0)
                _log.warning(
                    "cannot %s: %s; attempt %d of %d failed, the next one in %.1f s",
                    redact(doing), redact.explain(error), attempt, self.attempts, pause,
                )  # fmt: skip
            self.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")
