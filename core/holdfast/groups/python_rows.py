"""Rows as Python values: named rows of Arrow columns, and Arrow columns of tuples."""

from __future__ import annotations

import datetime as dt
from collections import namedtuple
from functools import lru_cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import InvalidRequest, InvalidSchema
from holdfast.rows import RowCodec
from holdfast.rows.dialect import ddl, type_ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_ROWS_AT_ONCE = 4_096
"""Rows turned into Python values together: few enough to stay in the processor's caches."""

_MISFITS = (TypeError, ValueError, AttributeError, OverflowError, pa.ArrowException, InvalidSchema)
"""What trying to make columns of values raises; one that is no time at all has no tzinfo."""


class Row(tuple[Any, ...]):
    """A row whose values are reached by name (``row.user``, ``row["user id"]``), by position, or one after the other.

    A name that is no identifier, or that Python itself uses (``__len__``), works in brackets only.
    """

    __slots__ = ()
    __row_names__: tuple[str, ...] = ()

    def __getitem__(self, at: Any) -> Any:
        if at.__class__ is str:
            try:
                return tuple.__getitem__(self, self.__row_names__.index(at))
            except ValueError:
                raise KeyError(f"there is no column {at!r}; there are {', '.join(self.__row_names__)}") from None
        return tuple.__getitem__(self, at)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self.__row_names__, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.__row_names__, tuple(self))


@lru_cache(maxsize=64)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """The class of rows with these columns; of columns with one name, the first has the attribute."""
    # A named tuple's own descriptors read a field without running Python code, whatever name they are given.
    getters = namedtuple("_Getters", [f"at{position}" for position in range(len(names))])  # type: ignore[misc]
    members: dict[str, Any] = {"__slots__": (), "__row_names__": names}
    for position, name in enumerate(names):
        if not (name.startswith("__") and name.endswith("__")):
            members.setdefault(name, getattr(getters, f"at{position}"))
    return type("Row", (Row,), members)


def _rebuild(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return row_maker(names)(values)


def row_maker(names: Sequence[str]) -> Callable[[Iterable[Any]], Row]:
    """What makes a row of the values of its columns."""
    return partial(tuple.__new__, row_class(tuple(names)))


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Rows of a batch, made as they are asked for."""
    make = row_maker(batch.schema.names)
    for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
        block = batch.slice(first, _ROWS_AT_ONCE)
        yield from map(make, zip(*map(_values, block.columns, batch.schema), strict=True))


def _values(column: pa.Array, field: pa.Field) -> list[Any]:
    kind = field.type
    try:
        if pa.types.is_timestamp(kind):
            return _timestamps(column, kind)
        if not column.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            values: list[Any] = column.to_numpy().tolist()
            return values
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"column {field.name!r}: Python has no {type_ddl(kind)} that far from 1970; "
            f"use apply_arrow, or filter these rows: {error}"
        ) from error


def _timestamps(column: pa.Array, kind: pa.DataType) -> list[Any]:
    # Twenty times as fast as Arrow's own conversion.
    naive = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
    if int in set(map(type, naive)):
        raise OverflowError("it is beyond year 1 to 9999")
    if kind.tz is None:
        return naive  # type: ignore[no-any-return]
    utc = dt.timezone.utc
    return [None if value is None else value.replace(tzinfo=utc) for value in naive]


def table_of(rows: Sequence[Any], schema: pa.Schema, describe: Callable[[int], str]) -> pa.Table:
    """The Arrow columns of tuples; InvalidSchema names the column, and `describe` tells of which row it is."""
    try:
        kinds = set(map(type, rows))
        if not all(issubclass(kind, (tuple, list)) for kind in kinds):
            raise TypeError("not a tuple")
        if set(map(len, rows)) - {len(schema)}:
            raise ValueError("other columns")
        if kinds - {tuple}:
            # Of plain tuples, columns are made without running Python code.
            rows = list(map(tuple, rows))
        columns = [_column(list(map(itemgetter(at), rows)), field) for at, field in enumerate(schema)]
        return pa.Table.from_arrays(columns, schema=schema)
    except _MISFITS:
        # Only now, because looking at each row costs more than all the rest.
        for position, row in enumerate(rows):
            check_row(row, schema, describe(position))
        raise


def check_row(row: Any, schema: pa.Schema, what: str) -> None:
    """Raise InvalidSchema if this is not a row of the schema."""
    if not isinstance(row, (tuple, list)):
        raise InvalidSchema(f"{what}: a row is a tuple, and this is {type(row).__name__} {row!r}")
    if len(row) != len(schema):
        raise InvalidSchema(f"{what}: ({ddl(schema)}) has {len(schema)} columns, and {row!r} has {len(row)}")
    for value, field in zip(row, schema, strict=True):
        try:
            _column([value], field)
        except _MISFITS as error:
            raise InvalidSchema(
                f"{what}: column {field.name!r} is {type_ddl(field.type)}{'' if field.nullable else ' not null'}, "
                f"and the value is {type(value).__name__} {value!r}: {error}"
            ) from error


def _column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Make an array, where Arrow does and where it does not tell that a value would be changed."""
    kind = field.type
    if pa.types.is_nested(kind):
        codec = RowCodec(pa.schema([field]))
        for value in values:
            codec.encode_one((value,))
    elif pa.types.is_timestamp(kind):
        zoned = kind.tz is not None
        for value in values:
            if value is not None and (value.tzinfo is not None) != zoned:
                raise TypeError("an aware datetime is needed" if zoned else "a datetime without time zone is needed")
    elif (pa.types.is_integer(kind) or pa.types.is_date(kind)) and any(
        issubclass(each, (float, dt.datetime)) for each in set(map(type, values))
    ):
        raise TypeError("it would be cut off")
    column = pa.array(values, kind)
    if column.null_count and not field.nullable:
        raise ValueError("it is None")
    return column
