"""Where a server is, and what it takes to be let in."""

from __future__ import annotations

from dataclasses import dataclass, field

AUTHORIZATION = "authorization"
"""The header that carries the token, on every call."""


@dataclass(frozen=True, slots=True)
class Address:
    """All that a client needs to reach a server."""

    location: str
    """``grpc://host:port``, ``grpc+tls://host:port`` or ``grpc+unix:///path``."""
    token: str = field(repr=False)
    """The secret that the server wants to see; never shown."""
    tls_root: str | None = None
    """File with the certificates to trust (PEM); None trusts those of the machine."""

    def __str__(self) -> str:
        return self.location


def bearer(token: str) -> str:
    """The value of the header."""
    return f"Bearer {token}"
