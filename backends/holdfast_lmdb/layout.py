"""How keys, values and undo records are spelled in LMDB."""

from __future__ import annotations

import hashlib
import struct
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast import Changes, Pair

JOURNAL = 2**64 - 1
"""Stands for the version of undo entries that are needed only until all parts of something are written."""

LONGEST_KEY = 511
"""LMDB's limit. A stored key of exactly this length stands for a longer one, which is then in the value."""

_PLAIN = 504
_HASH = 32
_LENGTH = struct.Struct(">I")
_RECORD = struct.Struct(">Ii")
_ENTRY = struct.Struct(">II")
_REMOVED = -1
_ALIKE = struct.Struct(">?Ii")
"""Begins an undo entry: whether all of its records have these sizes, and then not each says its own."""
_UNDO_CHUNK = 1024
"""Records in one undo entry: few entries, and none so large that LMDB must find many pages in a row."""


def stored_key(key: bytes) -> bytes:
    """The key under which LMDB has ``key``: itself, if LMDB can hold it (not empty, not too long)."""
    if 0 < len(key) <= _PLAIN:
        return key
    return key[: LONGEST_KEY - _HASH].ljust(LONGEST_KEY - _HASH, b"\0") + hashlib.sha256(key).digest()


def stored_value(key: bytes, value: bytes) -> bytes:
    """The value to store under ``stored_key(key)``."""
    if 0 < len(key) <= _PLAIN:
        return value
    return _LENGTH.pack(len(key)) + key + value


def original(stored: Pair) -> Pair:
    """The key and value that a stored pair stands for."""
    key, value = stored
    if len(key) < LONGEST_KEY:
        return stored
    (length,) = _LENGTH.unpack_from(value)
    start = _LENGTH.size
    return value[start : start + length], value[start + length :]


def original_value(key: bytes, value: bytes | None) -> bytes | None:
    """The value of ``key``, given what is stored for it."""
    if value is None or 0 < len(key) <= _PLAIN:
        return value
    return value[_LENGTH.size + len(key) :]


def all_plain(keys: Sequence[bytes]) -> bool:
    """Whether each of the keys is stored as it is."""
    lengths = set(map(len, keys))
    return not lengths or (min(lengths) > 0 and max(lengths) <= _PLAIN)


def undo_prefix(version: int) -> bytes:
    """How the keys of the undo entries of one version begin."""
    return version.to_bytes(8, "big")


def undo_entries(version: int, part: int, before: Changes) -> Iterator[Pair]:
    """The entries that record which values the keys of a part of ``version`` had before it."""
    keys, values = list(before), list(before.values())
    for number, start in enumerate(range(0, len(keys), _UNDO_CHUNK)):
        some = slice(start, start + _UNDO_CHUNK)
        yield undo_prefix(version) + _ENTRY.pack(part, number), _records(keys[some], values[some])


def _records(keys: list[bytes], values: list[bytes | None]) -> bytes:
    key_sizes = set(map(len, keys))
    value_sizes = {_REMOVED if value is None else len(value) for value in values}
    rows = [value or b"" for value in values]
    if len(key_sizes) == len(value_sizes) == 1:
        return _ALIKE.pack(True, *key_sizes, *value_sizes) + b"".join(chain.from_iterable(zip(keys, rows, strict=True)))
    sizes = (_RECORD.pack(len(k), _REMOVED if v is None else len(v)) for k, v in zip(keys, values, strict=True))
    return _ALIKE.pack(False, 0, 0) + b"".join(chain.from_iterable(zip(sizes, keys, rows, strict=True)))


def undo_changes(values: Iterable[bytes]) -> Changes:
    """What the values of ``undo_entries`` record."""
    before: Changes = {}
    for data in values:
        alike, key_size, value_size = _ALIKE.unpack_from(data)
        position = _ALIKE.size
        while position < len(data):
            if not alike:
                key_size, value_size = _RECORD.unpack_from(data, position)
                position += _RECORD.size
            key_end = position + key_size
            key = data[position:key_end]
            position = key_end + max(value_size, 0)
            before[key] = None if value_size == _REMOVED else data[key_end:position]
    return before
