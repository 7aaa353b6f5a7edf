"""What ``holdfast cat`` does: the rows of one version of one store."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import pyarrow as pa

from holdfast.cli.inspection import WIDE, spans
from holdfast.cli.progress import progress
from holdfast.errors import CorruptState, InvalidRequest, MissingVersion
from holdfast.ids import DEFAULT_STORE_NAME
from holdfast.rows import ddl
from holdfast.rows.void import StoredRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.checkpoint.checkpoint import Checkpoint, Operator, Store

AT_A_TIME = 10_000
"""Rows decoded together."""

TABLE_LIMIT = 1000
"""Rows of a table when no limit is given: it is laid out as a whole."""


@dataclass(frozen=True)
class Selection:
    """What of a checkpoint is shown."""

    operator: Operator
    stores: list[Store]
    version: int
    limit: int | None
    row_checksums: bool
    is_committed: bool
    """Whether Spark's log has the batch that made the version, as far as is known."""

    @property
    def store_name(self) -> str:
        return self.stores[0].name

    def __str__(self) -> str:
        partitions = spans([store.partition for store in self.stores])
        batch = f"after batch {self.version - 1}" if self.version else "before the first batch"
        batch += "" if self.is_committed else ", which is not committed"
        return (
            f"operator {self.operator.id}, store {self.store_name}, partition{'s' * (len(self.stores) > 1)}"
            f" {partitions}, version {self.version} ({batch})"
        )


@dataclass(frozen=True)
class Rows:
    """Some rows of one partition, still encoded."""

    partition: int
    keys: list[bytes]
    values: list[bytes]


def select(
    checkpoint: Checkpoint,
    operator_id: int | None,
    partition: int | None,
    store_name: str | None,
    version: int | None,
    limit: int | None,
) -> Selection:
    """Find what is meant; where something is left out and there is a choice, the error lists it."""
    operator = _operator(checkpoint, operator_id)
    if any(store.is_rocksdb for store in operator.stores):
        raise InvalidRequest(
            f"{operator.folder.shown} is kept in RocksDB, which Holdfast does not read; use"
            " spark.read.format('statestore')"
        )
    if not operator.stores:
        kind = operator.kept_elsewhere
        elsewhere = f": it is of kind {kind}, and its state is elsewhere" if kind else ""
        raise InvalidRequest(f"{operator.folder.shown} has no state files{elsewhere}")
    name = DEFAULT_STORE_NAME if store_name is None else store_name
    stores = operator.named(name)
    if not stores:
        raise InvalidRequest(
            f"operator {operator.id} has no store {name!r}; choose one with --store: {', '.join(operator.store_names)}"
        )
    if partition is None:
        if gone := sorted([*operator.missing_partitions, *operator.without_store(name)]):
            raise MissingVersion(
                f"partition {gone[0]} is not there for operator {operator.id}, store {name}; choose one with"
                f" --partition: {spans([store.partition for store in stores])}"
            )
    else:
        there = spans([store.partition for store in stores])
        stores = [store for store in stores if store.partition == partition]
        if not stores:
            raise InvalidRequest(
                f"operator {operator.id}, store {name}, has no partition {partition}; there are {there}"
            )
    chosen = _newest(stores) if version is None else _available(stores, version)
    is_committed = chosen <= max(checkpoint.batches.commits, default=chosen) + 1
    return Selection(operator, stores, chosen, limit, checkpoint.row_checksums(operator), is_committed)


def _operator(checkpoint: Checkpoint, operator_id: int | None) -> Operator:
    if operator_id is not None:
        return checkpoint.operator(operator_id)
    if len(checkpoint.operators) == 1:
        return checkpoint.operators[0]
    there = ", ".join(str(operator.id) for operator in checkpoint.operators) or "none"
    raise InvalidRequest(f"{checkpoint.shown} has several operators; choose one with --operator: {there}")


def _newest(stores: list[Store]) -> int:
    common = set.intersection(*(set(store.readable) for store in stores))
    if not common:
        shown = "; ".join(f"partition {store.partition}: {spans(store.readable) or 'none'}" for store in stores[:10])
        raise MissingVersion(f"no version can be loaded for all partitions: {shown}")
    return max(common)


def _available(stores: list[Store], version: int) -> int:
    for store in stores:
        if not store.can_load(version):
            raise MissingVersion(
                f"version {version} of {store.folder.shown} cannot be loaded; there are:"
                f" {spans(store.readable) or 'none'}"
            )
    return version


def rows(selection: Selection, done: Callable[[], None] = lambda: None) -> Iterator[Rows]:
    """Yield the rows by partition, in each as the files have them; one partition is in memory at a time."""
    left = math.inf if selection.limit is None else selection.limit
    for store in selection.stores:
        if left <= 0:
            return
        pairs = iter(store.state(selection.version, row_checksums=selection.row_checksums).items())
        while left > 0 and (some := list(islice(pairs, int(min(left, AT_A_TIME))))):
            left -= len(some)
            yield Rows(store.partition, [key for key, _ in some], [value for _, value in some])
        done()


class Decoder:
    """Rows by the stored schema."""

    def __init__(self, selection: Selection) -> None:
        operator, name = selection.operator, selection.store_name
        schema = operator.schema(name)
        if schema is None:
            raise InvalidRequest(
                f"no schema is stored for operator {operator.id}, store {name}: Spark writes one since version 3.1;"
                " --format hex shows the rows as they are"
            )
        self._where = f"operator {operator.id}, store {name}"
        self._schema = schema
        self._key, self._value = StoredRows(schema.key), StoredRows(schema.value)
        self.key_fields, self.value_fields = _distinct(schema.key), _distinct(schema.value)

    def columns(self, some: Rows) -> tuple[list[pa.Array], list[pa.Array]]:
        """Decode to one array per column of the key and of the value."""
        try:
            return self._key.decode(some.keys), self._value.decode(some.values)
        except CorruptState as error:
            raise CorruptState(
                f"partition {some.partition} of {self._where} has rows that are not of the stored schema, key"
                f" ({ddl(self._schema.key)}), value ({ddl(self._schema.value)}): {error}; --format hex shows them as"
                " they are (Spark 3.3 stored the wrong schema for deduplication)"
            ) from error


def _distinct(schema: pa.Schema) -> list[pa.Field]:
    """The columns, their names numbered where Spark gave one name to several: its aggregations do."""
    seen: dict[str, int] = {}
    fields = []
    for field in schema:
        seen[field.name] = seen.get(field.name, 0) + 1
        fields.append(field if seen[field.name] == 1 else field.with_name(f"{field.name}#{seen[field.name]}"))
    return fields


def write_hex(selection: Selection, out: TextIO) -> None:
    """Print partition, key and value of each row, the latter two as hexadecimal."""
    for some in rows(selection):
        lines = (f"{some.partition}\t{k.hex()}\t{v.hex()}\n" for k, v in zip(some.keys, some.values, strict=True))
        out.write("".join(lines))


def write_json(selection: Selection, out: TextIO) -> None:
    """Print one JSON object per row."""
    decoder = Decoder(selection)
    for some in rows(selection):
        for key, value in _pairs(decoder, some):
            row = {"partition": some.partition, "key": key, "value": value}
            out.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _pairs(decoder: Decoder, some: Rows) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Key and value of each row as what JSON can say."""
    keys, values = decoder.columns(some)
    count = len(some.keys)
    key_rows = _plain_rows(decoder.key_fields, keys, count)
    return zip(key_rows, _plain_rows(decoder.value_fields, values, count), strict=True)


def _plain_rows(fields: list[pa.Field], columns: list[pa.Array], count: int) -> Iterator[dict[str, Any]]:
    if not columns:
        return iter([{} for _ in range(count)])
    lists = [[plain(value) for value in python_values(column)] for column in columns]
    names = [field.name for field in fields]
    return (dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True))


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column; times that Python has no object for as text."""
    try:
        values: list[Any] = column.to_pylist()
        return values
    except (ValueError, OverflowError):
        return [_python_value(value) for value in column]


def _python_value(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        # Spark's timestamps go to the year 294247, Python's to 9999.
        return f"{value.value} µs since 1970" if pa.types.is_timestamp(value.type) else str(value)


def plain(value: Any) -> Any:
    """A value as JSON can say it without loss: decimals and times as text, binary in base 64, maps as pairs."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, Decimal) else repr(value)


def write_table(selection: Selection, out: TextIO) -> None:
    """Print a table; without a limit, of the first rows only."""
    from dataclasses import replace

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    limit = TABLE_LIMIT if selection.limit is None else selection.limit
    decoder = Decoder(selection)
    titles = [f"key.{field.name}" for field in decoder.key_fields]
    titles += [f"value.{field.name}" for field in decoder.value_fields]
    table = Table("partition", *map(escape, titles), box=None, pad_edge=False)
    shown, more = 0, False
    # One row beyond the limit tells whether there are more.
    for some in rows(replace(selection, limit=limit + 1)):
        for key, value in _pairs(decoder, some):
            shown += 1
            if shown > limit:
                more = True
                break
            cells = [*key.values(), *value.values()]
            table.add_row(str(some.partition), *(Text(_cell(cell)) for cell in cells))
    width = None if out is sys.stdout and out.isatty() else WIDE
    Console(file=out, width=width).print(table)
    if more and selection.limit is None:
        click.echo(f"only the first {limit} rows; --limit N or another --format shows more", err=True)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def write_parquet(selection: Selection, path: Path) -> None:
    """Write columns ``partition_id``, ``key`` and ``value``, the latter two as structs, as Spark's reader has them."""
    import pyarrow.parquet as pq

    decoder = Decoder(selection)
    schema = pa.schema([pa.field("partition_id", pa.int32(), nullable=False)])
    for part, fields in {"key": decoder.key_fields, "value": decoder.value_fields}.items():
        # Parquet has no struct without fields.
        if len(fields):
            schema = schema.append(pa.field(part, pa.struct(fields), nullable=False))
    with pq.ParquetWriter(path, schema) as writer, progress("writing partitions", len(selection.stores)) as done:
        for some in rows(selection, done):
            parts = dict(zip(("key", "value"), decoder.columns(some), strict=True))
            columns = [pa.array([some.partition] * len(some.keys), pa.int32())]
            columns += [
                pa.StructArray.from_arrays(parts[part], fields=list(schema.field(part).type))
                for part in parts
                if part in schema.names
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


WRITERS: dict[str, Callable[[Selection, TextIO], None]] = {
    "table": write_table,
    "json": write_json,
    "hex": write_hex,
}


def run(selection: Selection, form: str, output: str | None) -> None:
    """Show the rows."""
    if form == "parquet" and output is None:
        raise InvalidRequest("--format parquet is not for a terminal; say where to with --output FILE")
    # Not on standard output: that has the rows and nothing else.
    click.echo(str(selection), err=True)
    if output is None:
        WRITERS[form](selection, sys.stdout)
        sys.stdout.flush()
        return
    with _whole_file(Path(output)) as path:
        if form == "parquet":
            write_parquet(selection, path)
        else:
            with path.open("w", encoding="utf-8", newline="\n") as out:
                WRITERS[form](selection, out)


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """Give a name to write to that becomes the file when all is written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
