"""Filesystems of fsspec: found, configured, shared by threads, made anew after a fork; one seam for their errors."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import fsspec
from fsspec.asyn import reset_lock
from fsspec.utils import tokenize

from holdfast.checkpoint.failures import Redactor
from holdfast.errors import EnvironmentNotReady, InvalidRequest, InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.checkpoint.failures import Patience
    from holdfast.checkpoint.urls import Location

T = TypeVar("T")

EXTRAS = frozenset({"gcs", "s3"})
"""Protocols whose package an extra of the same name brings."""

WITHOUT_HOST = frozenset({"file", "gcs", "memory", "s3"})
"""Protocols that reach the same store whatever the URL says."""

INHERITED_FOR = 4.0
"""Seconds for which a forked child may get its parent's connections to DataNodes from hdfs-native, and hang on them.

A new instance does not help. With hdfs-native 0.14.7, a read right after the fork hangs, one 4 s later does not.
"""

_shared: dict[str, Filesystem] = {}

# fsspec's thread does not survive a fork, and its lock may be held in one; early versions leave both to the user.
os.register_at_fork(after_in_child=reset_lock)


def nothing() -> None:
    """Ask nobody."""


class Filesystem:
    """One filesystem with its options. Threads share it; a forked child connects anew."""

    def __init__(self, location: Location, options: Mapping[str, Any]) -> None:
        self.protocol = location.protocol
        self._url = location.url
        self._options = dict(options)
        password = None if self.protocol in WITHOUT_HOST else urlsplit(location.url).password
        self.redact = Redactor({**options, "password in the URL": password})
        self.takes_conditions = True
        """Whether the store may be asked to write only where nothing is; not, once it has said that it cannot."""
        # By process id: fsspec refuses an inherited instance, and dropping it would close the parent's sockets.
        # No lock: one that another thread holds during a fork stays locked in the child.
        self._made: dict[int, Any] = {}

    @property
    def fs(self) -> Any:
        """The instance of this process."""
        made = self._made.get(os.getpid())
        if made is None and self._made and self.protocol == "hdfs":
            time.sleep(INHERITED_FOR)
        return made if made is not None else self._made.setdefault(os.getpid(), self._make())

    def path_of(self, url: str) -> str:
        """Return the path in a URL that only its own filesystem understands."""
        return str(type(self.fs)._strip_protocol(url)).rstrip("/")  # noqa: SLF001 -- fsspec has no public name for it

    def entries(self, path: str) -> list[dict[str, Any]]:
        """Return what is in a folder, as fsspec describes it; FileNotFoundError if there is no folder."""
        if self.protocol == "file":
            return local_entries(path)
        self.fs.invalidate_cache()
        return list(self.fs.ls(path, detail=True))

    def call(
        self,
        patience: Patience,
        doing: str,
        action: Callable[[Any], T],
        *,
        before: Callable[[], None] = nothing,
        absent: bool = False,
    ) -> T:
        """Let ``action`` use the filesystem: see `Patience.call`."""
        return patience.call(doing, lambda: action(self.fs), self.redact, before=before, absent=absent)

    def _make(self) -> Any:
        kind = filesystem_class(self.protocol)
        options = {**options_in_url(kind, self.protocol, self._url), **with_defaults(self.protocol, self._options)}
        try:
            # Not from fsspec's own cache: our settings are not for others who use the same store in this process.
            made = kind(**options, skip_instance_cache=True)
        except (TypeError, ValueError) as wrong:
            raise InvalidSetting(
                f"the {self.protocol} filesystem does not take the options {', '.join(sorted(self._options))}: "
                f"{self.redact.explain(wrong)}"
            ) from (wrong if self.redact.may_show(wrong) else None)
        if self.protocol == "s3":
            made.retries = 1  # an attribute: s3fs has no option for it
        if self.protocol == "hdfs":
            # Ours are paths already; taken for URLs, "a?b", "a#b" and "a;b" would all be the file "a".
            made._strip_protocol = str  # noqa: SLF001 -- fsspec has no public name for it
        return made


def filesystem_for(location: Location, options: Mapping[str, Any]) -> Filesystem:
    """Return the filesystem with these options; all who ask share one."""
    authority = "" if location.protocol in WITHOUT_HOST else urlsplit(location.url).netloc
    token = tokenize(location.protocol, authority, dict(options))
    found = _shared.get(token)
    return found if found is not None else _shared.setdefault(token, Filesystem(location, options))


def filesystem_class(protocol: str) -> Any:
    """Import the class behind a protocol."""
    if protocol == "gcs":
        # Otherwise each call first asks, for up to a minute, whether the bucket is of a kind that we do not use.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    try:
        return fsspec.get_filesystem_class(protocol)
    except ImportError as missing:
        way = f"pip install 'holdfast[{protocol}]'" if protocol in EXTRAS else str(missing)
        raise EnvironmentNotReady(
            f"the {protocol} filesystem needs a package that is not installed: {way}"
        ) from missing
    except ValueError as unknown:
        raise InvalidRequest(
            f"fsspec knows no filesystem {protocol!r}; is the package installed that has it?"
        ) from unknown


def local_entries(folder: str) -> list[dict[str, Any]]:
    """List a local folder while others write to it: early versions of fsspec then call it missing."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                size = entry.stat().st_size
            except FileNotFoundError:
                continue
            found.append({"name": entry.path, "size": size, "type": "directory" if entry.is_dir() else "file"})
    return found


def options_in_url(kind: Any, protocol: str, url: str) -> dict[str, Any]:
    """Return what the URL says about the server."""
    if protocol in WITHOUT_HOST:
        return {}
    if protocol == "hdfs":
        parts = urlsplit(url)
        named = {"host": parts.hostname, "port": parts.port, "user": parts.username}
        return {name: value for name, value in named.items() if value}
    return dict(kind._get_kwargs_from_urls(url))  # noqa: SLF001 -- fsspec has no public name for it


def with_defaults(protocol: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the options: no cache of listings, and no second layer of retries where it can be turned off."""
    if protocol == "s3":
        config = {"retries": {"total_max_attempts": 1}, **(options.get("config_kwargs") or {})}
        # One GET per file: several for its parts, as s3fs does by default, mix the old and the new content of a file
        # that is overwritten meanwhile.
        return {**options, "config_kwargs": config, "max_concurrency": 1, "use_listings_cache": False}
    if protocol == "gcs":
        return {"requests_timeout": 60, **options, "use_listings_cache": False}
    return dict(options)
