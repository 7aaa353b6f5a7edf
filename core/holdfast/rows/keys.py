"""What ordered access to state asks about many keys at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest, InvalidSchema
from holdfast.rows.codec import RowCodec
from holdfast.rows.dialect import ddl
from holdfast.rows.sortkey import SortKeyCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.rows.words import Bools


class KeyIndex:
    """Sort keys of one or more columns of encoded keys, for ordered access by them."""

    def __init__(self, key_schema: Any, *columns: int) -> None:
        """Index the columns at these positions; InvalidSchema if there is none, or its type has no order."""
        self._rows = RowCodec(key_schema)
        self._sort = SortKeyCodec(self._rows.schema, columns)
        self._bulk_sort = SortKeyCodec(self._schema(columns))
        self._columns = columns

    def _schema(self, columns: Sequence[int]) -> pa.Schema:
        return pa.schema([self._rows.schema.field(column) for column in columns])

    def sort_keys(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the sort key of each key (an UnsafeRow)."""
        columns = self._rows.decode(keys, columns=self._columns)
        return list(self._bulk_sort.encode(columns).to_pylist())

    def sort_key(self, key: bytes) -> bytes:
        """Return the sort key of one key (an UnsafeRow)."""
        try:
            return self._sort.encode_one(self._rows.decode_one(key))
        except InvalidRequest:
            # A date or time that Python does not have; Arrow does.
            return self.sort_keys([key])[0]

    def sort_prefix(self, prefix: bytes, columns: int) -> bytes:
        """Return how the sort keys of all keys begin whose first `columns` columns are the row `prefix`.

        For an index over the key's first columns, in their order.
        """
        leading = RowCodec(self._schema(range(columns)))
        row = leading.decode([prefix], columns=[column for column in self._columns if column < columns])
        return bytes(SortKeyCodec(row.schema).encode(row)[0].as_py())

    def bound(self, value: Any) -> bytes:
        """Return the sort key that a key with this value in the column has: an end of a range."""
        return self._sort.encode_prefix([value])


def prefix_matches(key_schema: Any, columns: int, prefix: bytes, keys: Sequence[bytes]) -> Bools:
    """Tell which keys' first `columns` columns are exactly the row `prefix`, an UnsafeRow over those columns."""
    codec = RowCodec(key_schema)
    if not 1 <= columns <= len(codec.schema):
        raise InvalidSchema(f"a prefix of {columns} columns of the key ({ddl(codec.schema)}) does not exist")
    leading = RowCodec(pa.schema([codec.schema.field(position) for position in range(columns)]))
    rows = leading.encode(codec.decode(keys, columns=range(columns)))
    matches: Bools = np.asarray(pc.equal(rows, pa.scalar(prefix, pa.large_binary())))
    return matches
