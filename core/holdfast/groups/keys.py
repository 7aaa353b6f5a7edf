"""Key columns: one value for what Spark groups as one, and their encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.errors import InvalidSchema
from holdfast.rows.dialect import ddl, type_ddl

if TYPE_CHECKING:
    from collections.abc import Sequence


def key_fields(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The schema of a key made of these columns. Raises InvalidSchema for columns that cannot be one."""
    if not names:
        raise InvalidSchema("a key has at least one column; name the columns to group by")
    if len(set(names)) != len(names):
        raise InvalidSchema(f"the key columns are {list(names)}; name each once")
    for name in names:
        if len(schema.get_all_field_indices(name)) != 1:
            what = "more than one column" if name in schema.names else "no column"
            raise InvalidSchema(f"there is {what} {name!r} to group by in ({ddl(schema)})")
        _refuse_maps(schema.field(name).type, name)
    return pa.schema([schema.field(name) for name in names])


def _refuse_maps(data_type: pa.DataType, path: str) -> None:
    if pa.types.is_map(data_type):
        raise InvalidSchema(
            f"column {path!r} is {type_ddl(data_type)}; maps have no order of entries, so equal ones need not be equal "
            "keys; group by array_sort(map_entries(...)) of it"
        )
    for position in range(data_type.num_fields):
        _refuse_maps(data_type.field(position).type, f"{path}.{data_type.field(position).name}")


def normal_keys(array: pa.Array) -> pa.Array:
    """The array with every NaN as one NaN and -0.0 as 0.0, inside nested values too, as Spark groups them."""
    if not _has_floats(array.type):
        return array
    if pa.types.is_floating(array.type):
        values = array.to_numpy(zero_copy_only=False)
        values = values + values.dtype.type(0)
        values[np.isnan(values)] = np.nan
        nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        return pa.array(values, array.type, mask=nulls, from_pandas=False)
    # A copy without offset: Arrow builds no nested arrays from slices with nulls.
    array = array.take(pa.array(np.arange(len(array))))
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(array.type):
        children = [normal_keys(array.field(position)) for position in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)
    return pa.ListArray.from_arrays(array.offsets, normal_keys(array.values), type=array.type, mask=mask)


def _has_floats(data_type: pa.DataType) -> bool:
    if pa.types.is_floating(data_type):
        return True
    return any(_has_floats(data_type.field(position).type) for position in range(data_type.num_fields))
