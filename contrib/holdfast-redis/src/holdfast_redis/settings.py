"""What can be configured: which Redis, how to log in, and how to trust it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from holdfast import Seconds, Settings, setting
from holdfast.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Mapping


# Without a generated repr, which would show the password.
@dataclass(frozen=True, kw_only=True, repr=False)
class RedisSettings(Settings):
    """The settings of this backend."""

    prefix: ClassVar[str] = "spark.holdfast.redis."

    url: str | None = setting(
        None, "The server, as redis://host:port/db, rediss://host:port/db (TLS) or unix:///socket. Required."
    )
    username: str | None = setting(None, "User to log in as; not set: Redis's default user.")
    password: str | None = setting(None, "Password to log in with.")
    tls_ca_file: str | None = setting(None, "CA certificates to trust with rediss://; not set: the system's.")
    tls_certificate_file: str | None = setting(None, "Certificate to show to the server, if it asks for one.")
    tls_key_file: str | None = setting(None, "Private key of that certificate.")
    namespace: str = setting("holdfast", "Start of the names of all keys in Redis.")
    timeout: Seconds = setting(Seconds(10.0), "How long to wait for an answer.", minimum=0.001)

    def checked_url(self) -> str:
        """The URL, if it is one that can be used and keeps no secret."""
        key = f"{self.prefix}url"
        if self.url is None:
            raise InvalidSetting(f"{key} is not set; give the address of a Redis that every executor can reach")
        parts = urlsplit(self.url)
        if parts.username or parts.password:
            raise InvalidSetting(
                f"{key} has a user or password in it, where logs would show them; set {self.prefix}username and"
                f" {self.prefix}password instead"
            )
        if parts.scheme not in {"redis", "rediss", "unix"} or parts.query or parts.fragment:
            raise InvalidSetting(
                f"{key} is {self.url!r}; accepted: redis://host:port/db, rediss://host:port/db or unix:///socket"
            )
        if parts.scheme != "rediss" and (self.tls_ca_file or self.tls_certificate_file or self.tls_key_file):
            raise InvalidSetting(f"{key} is {self.url!r}, but there are settings for TLS: write rediss://")
        return self.url

    def tls_options(self) -> Mapping[str, str | bool | None]:
        """What redis-py wants to know about TLS; the server's name is always checked."""
        if urlsplit(self.checked_url()).scheme != "rediss":
            return {}
        for item in self.declared():
            path = getattr(self, item.field)
            if item.field.endswith("_file") and path is not None and not Path(path).is_file():
                raise InvalidSetting(f"{item.key} is {path!r}, and there is no such file on this machine")
        return {
            "ssl_ca_certs": self.tls_ca_file,
            "ssl_certfile": self.tls_certificate_file,
            "ssl_keyfile": self.tls_key_file,
            "ssl_check_hostname": True,
        }
