"""Where a checkpoint lies: URLs in Hadoop's spelling, and what of them may be shown.

A URL is read as Hadoop's ``Path.toString`` writes it, so nothing is percent-encoded: ``file:/a%20b`` is the folder
``a%20b``, and a space stands for itself. A plain path is literal too; a relative one starts at the working folder.
``.`` and ``..`` are resolved by their names alone, as Hadoop does, and may not lead out of the root or the bucket.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from holdfast.errors import InvalidRequest

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
# Passwords are pasted with "/" and "@" in them, so behind a colon everything up to the last "@" may be one.
_USER = re.compile(r"(?<=://)(?:[^/@:\s]*:[^\s'\"]*@|[^/@\s]*@)")
_QUERY = re.compile(r"(?<=\?)[^\s'\"]*(?:auth|cred|key|passw|secret|sig|token|upload_id)[^\s'\"]*", re.IGNORECASE)

FSSPEC_NAMES = {"s3a": "s3", "s3n": "s3", "gs": "gcs", "local": "file", "abfss": "abfs"}
"""Hadoop's name of a filesystem, where fsspec has another."""

IN_BUCKETS = frozenset({"s3", "gcs"})
"""Protocols whose paths begin with the name of a bucket, and whose credentials never stand in the URL."""


@dataclass(frozen=True, slots=True)
class Location:
    """A folder, taken apart."""

    protocol: str
    """As fsspec names it."""
    path: str
    """As the filesystem wants it; empty where only fsspec can tell it from the URL."""
    url: str
    """The whole, for fsspec. May hold a password."""
    shown: str
    """The whole, for people. Never holds a secret."""


def locate(url: str) -> Location:
    """Take a URL or a plain path apart; refuse what has no safe meaning."""
    if not url or "\0" in url:
        raise InvalidRequest(f"{url!r} is no place for a checkpoint; give a path or a URL")
    matched = None if url.startswith(("/", ".")) else _SCHEME.fullmatch(url)
    if matched is None:
        path = _normal(os.path.abspath(url) if not url.startswith("/") else url, url)
        return Location("file", "/" + path, "file:///" + path, "/" + path)
    scheme, rest = matched[1].lower(), matched[2]
    protocol = FSSPEC_NAMES.get(scheme, scheme)
    if protocol == "file":
        return _local(url, rest)
    if not rest.startswith("//"):
        raise InvalidRequest(f"{redact_urls(url)} is not understood; write {scheme}://… or, for a plain path, ./…")
    return _remote(protocol, scheme, rest[2:], url)


def _local(url: str, rest: str) -> Location:
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        if authority not in {"", "localhost"} or not slash:
            raise InvalidRequest(f"{url} names a machine; a file: URL has an absolute path, as in file:///{rest[2:]}")
        rest = "/" + path
    if not rest.startswith("/"):
        raise InvalidRequest(f"{url} is relative; a file: URL has an absolute path")
    path = _normal(rest, url)
    return Location("file", "/" + path, "file:///" + path, "file:/" + path)


def _remote(protocol: str, scheme: str, rest: str, url: str) -> Location:
    shown = redact_urls(url)
    if protocol == "memory":
        path = _normal(rest, shown)
        return Location("memory", "/" + path, f"memory://{path}", f"memory://{path}")
    authority, _, inside = rest.partition("/")
    inside = _normal(inside, shown)
    whole = f"{scheme}://{authority}/{inside}".rstrip("/")
    if protocol == "hdfs":
        return Location(protocol, "/" + inside, whole, redact_urls(whole))
    if protocol not in IN_BUCKETS:
        return Location(protocol, "", whole, redact_urls(whole))
    if "@" in authority or (":" in authority and not authority.startswith("arn:") and "@" in inside):
        raise InvalidRequest(f"{shown} has credentials in it; give them as options of the filesystem instead")
    if not authority:
        raise InvalidRequest(f"{shown} has no bucket; write {scheme}://bucket/folder")
    return Location(protocol, f"{authority}/{inside}".rstrip("/"), whole, redact_urls(whole))


def _normal(path: str, shown: str) -> str:
    """Resolve empty, ``.`` and ``..`` segments; no slash at either end."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if not kept:
                raise InvalidRequest(f"{shown} leads out of its root; write it without '..'")
            kept.pop()
        elif segment not in {"", "."}:
            kept.append(segment)
    return "/".join(kept)


def checked_name(name: str) -> str:
    """Return the name of one file or folder, unless it would reach elsewhere."""
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise InvalidRequest(f"{name!r} is no name of a file or folder; it must be one segment of a path")
    return name


def redact_urls(text: str) -> str:
    """Take user names, passwords and queries that may hold a secret out of every URL in a text."""
    return _QUERY.sub("***", _USER.sub("***@", text))
