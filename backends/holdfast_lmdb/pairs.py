"""Changing pairs, and the indexes with them, within a transaction of LMDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast_lmdb.layout import all_plain, original_value, stored_key, stored_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import Changes
    from holdfast_lmdb.key_order import Order
    from holdfast_lmdb.steps import Part

Moves: TypeAlias = "dict[bytes, bool]"
"""Keys that came (True) or went (False)."""


def change(transaction: Any, part: Part) -> Changes:
    """Set and remove pairs; returns what there was before."""
    keys, values = part.keys, part.values
    if None not in values and all_plain(keys):
        return dict(zip(keys, map(transaction.replace, keys, values), strict=True))
    before: Changes = {}
    for key, value in zip(keys, values, strict=True):
        stored = stored_key(key)
        old = transaction.pop(stored) if value is None else transaction.replace(stored, stored_value(key, value))
        before[key] = original_value(key, old)
    return before


def moves_of(part: Part, before: Changes) -> Moves:
    """Which keys come and go with a part."""
    pairs = zip(part.keys, part.values, strict=True)
    return {key: value is not None for key, value in pairs if (value is None) != (before[key] is None)}


def index_entries(order: Order, moves: Moves) -> list[tuple[bytes, bytes | None]]:
    """What to put into an index, or with ``None`` to remove from it, in its order."""
    return sorted(
        (entry, stored_key(key) if came else None)
        for entry, (key, came) in zip(order.entries(list(moves)), moves.items(), strict=True)
    )


def change_index(transaction: Any, database: Any, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
    """Put and remove entries of an index."""
    for entry, stored in entries:
        if stored is None:
            transaction.delete(entry, db=database)
        else:
            transaction.put(entry, stored, db=database)
