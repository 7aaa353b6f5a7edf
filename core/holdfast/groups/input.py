"""Batches as they come from Spark, fitted to the declared schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.errors import InvalidSchema
from holdfast.groups.keys import normal_keys
from holdfast.rows.conform import conform

if TYPE_CHECKING:
    from collections.abc import Collection


class InputColumns:
    """The columns of the input that are needed, in the types that the codecs know and with normal keys."""

    def __init__(self, schema: pa.Schema, keys: Collection[str], wanted: Collection[str] | None = None) -> None:
        """Take the whole schema, the names of its key columns, and those that are needed (all by default)."""
        self._names = schema.names
        self._keys = frozenset(keys)
        self._positions = [at for at, field in enumerate(schema) if wanted is None or field.name in wanted]
        self.schema = pa.schema([schema.field(at) for at in self._positions])

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of one batch."""
        if batch.schema.names != self._names:
            raise InvalidSchema(f"the columns are {batch.schema.names}, but the input is declared as {self._names}")
        columns = [self._fit(batch.column(at), field) for at, field in zip(self._positions, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _fit(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.type != field.type:
            # What is left after this is a difference in names or in the width of offsets.
            column = conform(column, field.type, field.name).cast(field.type)
        return normal_keys(column) if field.name in self._keys else column
