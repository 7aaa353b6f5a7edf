"""Certificates and keys, by the paths of their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import InvalidSetting


@dataclass(frozen=True, slots=True)
class Tls:
    """The files (PEM) that prove who a server is."""

    certificate: str
    key: str


def read_pem(path: str) -> bytes:
    """The content of a certificate or key file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidSetting(f"cannot read the certificate or key file {path}: {error.strerror}") from error
