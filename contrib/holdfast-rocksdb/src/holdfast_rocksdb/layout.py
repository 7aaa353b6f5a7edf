"""How pairs, undo records and index entries are spelled in RocksDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocksdict import WriteBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocksdict import Rdict, RdictIter

    from holdfast import Changes, Pair
    from holdfast_rocksdb.key_order import Order

_ABSENT, _PRESENT = b"\x00", b"\x01"


def pairs_prefix(generation: int) -> bytes:
    """How the keys of the pairs begin."""
    return b"d" + generation.to_bytes(8, "big")


def index_prefix(order: Order, generation: int) -> bytes:
    """How the entries of an index begin."""
    return order.letter + generation.to_bytes(8, "big")


def after(key: bytes) -> bytes:
    """The least key that is greater."""
    return key + b"\x00"


def moves(changes: Changes, before: Changes) -> dict[bytes, bool]:
    """Which keys come (True) and go (False) with changes."""
    return {key: new is not None for key, new in changes.items() if (new is None) != (before[key] is None)}


def add_pairs(batch: WriteBatch, generation: int, changes: Changes) -> None:
    """Have a batch set and remove pairs."""
    prefix = pairs_prefix(generation)
    for key, value in changes.items():
        if value is None:
            batch.delete(prefix + key)
        else:
            batch.put(prefix + key, value)


def undo_prefix(generation: int, version: int) -> bytes:
    """How the undo records of one version begin."""
    return b"u" + generation.to_bytes(8, "big") + version.to_bytes(8, "big")


def undo_record(before: bytes | None) -> bytes:
    """What is recorded of a value that there was before."""
    return _ABSENT if before is None else _PRESENT + before


def range_removed(generation: int, end: int) -> WriteBatch:
    """A batch that removes all from ``generation`` on and before ``end``."""
    batch = WriteBatch(raw_mode=True)
    for letter in (b"d", b"p", b"r"):
        batch.delete_range(letter + generation.to_bytes(8, "big"), letter + end.to_bytes(8, "big"))
    batch.delete_range(undo_prefix(generation, 0), undo_prefix(end, 0))
    return batch


def undone(database: Rdict, generation: int, version: int) -> Changes:
    """What differs between the stored pairs and ``version``."""
    first = undo_prefix(generation, version + 1)
    changes: Changes = {}
    for key, value in pairs(database.iter(), first, undo_prefix(generation + 1, 0)):
        # From old to new: of a key that changed twice the oldest record counts.
        changes.setdefault(key[len(first) :], value[1:] if value[:1] == _PRESENT else None)
    return changes


def pairs(cursor: RdictIter, start: bytes, end: bytes) -> Iterator[Pair]:
    """What a cursor shows from ``start`` on and before ``end``."""
    # The end is looked at here: in rocksdict an iterator's bound holds only as long as its ReadOptions object lives.
    cursor.seek(start)
    while cursor.valid():
        key: bytes = cursor.key()
        if key >= end:
            return
        yield key, cursor.value()
        cursor.next()
    # It also stops when something cannot be read; this raises then.
    cursor.status()
