"""Spark's state schema file: what the keys and values of a store are.

It lies in the folder of a store's partition 0, as ``_metadata/schema``, and Spark never changes it once it is there.
Its content is what Java's ``DataOutputStream`` makes: the version as a string (``v2``), then the JSON of the key's
schema and that of the value's. In v1 each is one string; in v2 each is a number of strings to be joined, because a
string cannot have more than 65,535 bytes. Strings are in Java's "modified UTF-8" behind their length in two bytes.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.checkpoint.failures import MissingFile
from holdfast.errors import CorruptState, InvalidRequest, InvalidSchema, UnsupportedOperation
from holdfast.rows import arrow_schema, ddl, spark_json
from holdfast.rows.schema_json import WORDS, row_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.checkpoint.storage import Folder

METADATA_FOLDER = "_metadata"
SCHEMA_FILE = "schema"

COLUMN_FAMILIES_FOLDER = "_stateSchema"
"""Where Spark keeps the schemas of an operator with column families: beside its partitions, in format v3."""

_CHUNK = 65_535
"""Characters that Spark puts into one string of v2; also the most bytes that a string can have."""

_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">H")

_VOID = ("void", "null")
"""The type of a column that is always null; it was called null before Spark 3.1."""

_SIZED = re.compile(r"decimal\((\d+),(-?\d+)\)|(?:var)?char\(\d+\)", re.ASCII)
# Types of Spark that have no place in a state of ours; every other word is damage.
_FOREIGN = re.compile(
    r"void|null|variant|interval.*|time\(\d\)|geo(?:metry|graphy)(?:\(.*\))?|string collate .*", re.ASCII
)


@dataclass(frozen=True)
class StateSchema:
    """What the keys and the values of one store are."""

    key: pa.Schema
    value: pa.Schema
    spelling: tuple[str, str] | None = field(default=None, compare=False, repr=False)
    """Spark's JSON of both as a file has it. It may say what Arrow does not: metadata of columns, which rows ignore."""

    def __post_init__(self) -> None:
        """Make schemas that Spark cannot tell apart equal; InvalidSchema names a column that state cannot hold."""
        object.__setattr__(self, "key", row_schema(self.key))
        object.__setattr__(self, "value", row_schema(self.value))

    @property
    def key_json(self) -> str:
        """Spark's JSON of the key's schema."""
        return spark_json(self.key) if self.spelling is None else self.spelling[0]

    @property
    def value_json(self) -> str:
        """Spark's JSON of the value's schema."""
        return spark_json(self.value) if self.spelling is None else self.spelling[1]

    def all_nullable(self) -> StateSchema:
        """The same with everything nullable, as Spark stores it: nullability may be tightened later, never relaxed."""
        return StateSchema(*(pa.schema([_nullable(column) for column in rows]) for rows in (self.key, self.value)))

    @classmethod
    def from_json(cls, key: str, value: str, where: str) -> StateSchema:
        """Read Spark's JSON of both; ``where`` is for the message of CorruptState if it is not that.

        Raises InvalidSchema for a type of Spark's that state cannot hold.
        """
        return cls(_columns(key, f"{where}: key"), _columns(value, f"{where}: value"), (key, value))


def read_state_schema(folder: Folder) -> StateSchema | None:
    """Read the schema of a store from the folder of its partition 0; None if Spark wrote none there."""
    try:
        data = folder.child(METADATA_FOLDER).read(SCHEMA_FILE)
    except MissingFile:
        return None
    return decode_state_schema(data, f"{folder.shown}/{METADATA_FOLDER}/{SCHEMA_FILE}")


def write_state_schema(folder: Folder, schema: StateSchema) -> None:
    """Write the schema of a store into the folder of its partition 0, as Spark does."""
    folder.child(METADATA_FOLDER).publish(SCHEMA_FILE, encode_state_schema(schema))


def refuse_column_families(operator: Folder) -> None:
    """Raise UnsupportedOperation if an operator's state is in column families, as transformWithState's is."""
    if COLUMN_FAMILIES_FOLDER in operator.folders():
        raise UnsupportedOperation(
            f"{operator.shown} has {COLUMN_FAMILIES_FOLDER}: {_COLUMN_FAMILIES}; read it with"
            " spark.read.format('statestore')"
        )


_COLUMN_FAMILIES = (
    "Spark keeps the state of transformWithState, and of joins of format 3, in column families of RocksDB, which"
    " Holdfast does not read"
)


def encode_state_schema(schema: StateSchema, version: int = 2) -> bytes:
    """The content of the file. Spark writes version 2 and still reads version 1."""
    texts = (schema.key_json, schema.value_json)
    if version == 2:
        return _string("v2") + b"".join(map(_chunks, texts))
    if version != 1:
        raise InvalidRequest(f"there is no version {version} of a state schema file; write 1 or 2")
    if any(len(_java_utf(_units(text))) > _CHUNK for text in texts):
        raise InvalidSchema(f"a schema of more than {_CHUNK} bytes does not fit version 1 of the file; write version 2")
    return b"".join(map(_string, ("v1", *texts)))


def decode_state_schema(data: bytes, where: str) -> StateSchema:
    """Read the content of the file named ``where``.

    Raises CorruptState if it is damaged, UnsupportedOperation for v3, and InvalidSchema for types of Spark's that state
    cannot hold.
    """
    reader = _Reader(data, where)
    version = reader.strings(1)
    if version == "v3":
        raise UnsupportedOperation(f"{where} is in format v3: {_COLUMN_FAMILIES}")
    if version not in {"v1", "v2"}:
        raise CorruptState(f"{where} is damaged, or of a later Spark: its version is {version!r}, not v1 or v2")
    key, value = (reader.strings(1 if version == "v1" else reader.count()) for _ in range(2))
    reader.end()
    return StateSchema.from_json(key, value, where)


def check_compatible(stored: StateSchema, new: StateSchema, where: str) -> None:
    """Raise InvalidSchema unless a store at ``where`` with the stored schema can go on with the new one.

    The rules are Spark's: columns have the same number, order and types, at every depth. Names and metadata may
    change. What may be null in the new schema may be null in the stored one; the other way round is fine.
    """
    problems = [
        *_problems(pa.struct(list(stored.key)), pa.struct(list(new.key)), "key"),
        *_problems(pa.struct(list(stored.value)), pa.struct(list(new.value)), "value"),
    ]
    if problems:
        raise InvalidSchema(
            f"the state in {where} does not fit the query's schema: {'; '.join(problems)}."
            f" Stored: key ({ddl(stored.key)}), value ({ddl(stored.value)})."
            f" New: key ({ddl(new.key)}), value ({ddl(new.value)})."
            " Go back to the stored number, order and types of columns (names may change, and a column may become"
            " NOT NULL), or start with a new checkpoint."
        )


def _problems(stored: pa.DataType, new: pa.DataType, path: str) -> Iterator[str]:
    """Say what of the new type does not fit the stored one."""
    then, now = _children(stored), _children(new)
    if then is None or now is None or type(stored) is not type(new):
        if stored != new:
            yield f"{path} is {_shown(new)}, stored {_shown(stored)}"
        return
    if len(then) != len(now):
        yield f"{path} has {_counted(len(now))}, stored {_counted(len(then))}"
        return
    for old_field, new_field in zip(then, now, strict=True):
        inner = f"{path}.{new_field.name}"
        yield from _problems(old_field.type, new_field.type, inner)
        if new_field.nullable and not old_field.nullable:
            yield f"{inner} may be null, stored NOT NULL"


def _children(data_type: pa.DataType) -> list[pa.Field] | None:
    if pa.types.is_map(data_type):
        return [data_type.key_field, data_type.item_field]
    if pa.types.is_list(data_type):
        return [data_type.value_field]
    return list(data_type) if pa.types.is_struct(data_type) else None


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(inner) for inner in kind])
    elif pa.types.is_map(kind):
        # Keys are never null.
        kind = pa.map_(_nullable(kind.key_field).with_nullable(False), _nullable(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    return pa.field(field.name, kind)


def _shown(data_type: pa.DataType) -> str:
    return ddl(pa.schema([pa.field("x", data_type)])).removeprefix("x ")


def _counted(columns: int) -> str:
    return f"{columns} column{'' if columns == 1 else 's'}"


def _columns(text: str, where: str) -> pa.Schema:
    """Read Spark's JSON, more strictly than `arrow_schema`: that is made for what people write, this for a file."""
    try:
        node = json.loads(text)
        if not (isinstance(node, dict) and node.get("type") == "struct"):
            raise _NotAType(node)
        _check_type(node)
        return pa.schema([_column(column) for column in node["fields"]])
    except InvalidSchema as error:
        raise InvalidSchema(f"{where}: {error}") from error
    except (ValueError, RecursionError, _NotAType) as error:
        raise CorruptState(f"{where} is damaged, or a later Spark wrote it: {error}") from error


def _column(node: dict[str, Any]) -> pa.Field:
    if node["type"] in _VOID:
        return pa.field(node["name"], pa.null(), nullable=node["nullable"])
    return arrow_schema({"type": "struct", "fields": [node]}).field(0)


class _NotAType(Exception):
    """A piece of JSON that no type of Spark's is spelled as."""

    def __init__(self, node: Any) -> None:
        super().__init__(f"{str(node)[:100]!r} is no type")


def _check_type(node: Any) -> None:
    if isinstance(node, str):
        if not (node in _KNOWN or _is_sized(node) or _FOREIGN.fullmatch(node)):
            raise _NotAType(node)
        return
    match node:
        case {"type": "array", "elementType": element, "containsNull": bool()}:
            _check_type(element)
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": bool()}:
            _check_type(key)
            _check_type(value)
        case {"type": "struct", "fields": list(fields)}:
            for each in fields:
                match each:
                    case {"name": str(name), "type": inner, "nullable": bool(), "metadata": dict()}:
                        name.encode()  # JSON can spell half a character, which no name has
                        _check_type(inner)
                    case _:
                        raise _NotAType(each)
        case {"type": "udt", "sqlType": inner}:
            _check_type(inner)
        case _:
            raise _NotAType(node)


_KNOWN = frozenset(WORDS.values())


def _is_sized(word: str) -> bool:
    sized = _SIZED.fullmatch(word)
    # Numbers out of range are damage too: Spark itself allows no others.
    return sized is not None and (sized[1] is None or 0 <= int(sized[2]) <= int(sized[1]) <= 38)


class _Reader:
    """What Java's ``DataInputStream`` does, on bytes."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data, self._where, self._at = data, where, 0

    def count(self) -> int:
        """Read the number of strings that follow."""
        (count,) = _COUNT.unpack(self._take(_COUNT.size))
        if count < 1:
            raise self._damaged(f"{count} strings for a schema")
        return int(count)

    def strings(self, count: int) -> str:
        """Read strings and join them: characters beyond 16 bits are two units, which may be in different strings."""
        units = []
        for _ in range(count):
            (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
            units.append(self._units(self._take(length)))
        try:
            return b"".join(units).decode("utf-16-be")
        except UnicodeDecodeError as error:
            raise self._damaged(f"half a character, {error}") from error

    def end(self) -> None:
        if self._at != len(self._data):
            raise self._damaged(f"{len(self._data) - self._at} bytes too many")

    def _units(self, encoded: bytes) -> bytes:
        try:
            # Java has no sequence of four bytes, which is the only kind that Python would take beyond Java's.
            if any(byte >= 0xF0 for byte in encoded):
                raise self._damaged("a byte that Java's UTF-8 does not have")
            text = encoded.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise self._damaged(str(error)) from error
        return text.encode("utf-16-be", "surrogatepass")

    def _take(self, length: int) -> bytes:
        taken = self._data[self._at : self._at + length]
        if len(taken) < length:
            raise self._damaged(f"it ends {length - len(taken)} bytes early")
        self._at += length
        return taken

    def _damaged(self, what: str) -> CorruptState:
        return CorruptState(f"{self._where} is damaged at byte {self._at}: {what}")


def _units(text: str) -> bytes:
    return text.encode("utf-16-be")


def _java_utf(units: bytes) -> bytes:
    """Java's modified UTF-8: each half of a surrogate pair by itself, and no zero byte."""
    text = "".join(map(chr, struct.unpack(f">{len(units) // 2}H", units)))
    return text.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _string(text: str) -> bytes:
    return _framed(_java_utf(_units(text)))


def _framed(encoded: bytes) -> bytes:
    return _LENGTH.pack(len(encoded)) + encoded


def _chunks(text: str) -> bytes:
    """One schema in version 2."""
    units = _units(text)
    for size in (_CHUNK, _CHUNK // 3):
        encoded = [_java_utf(units[at : at + 2 * size]) for at in range(0, len(units), 2 * size)]
        # Spark cuts by characters and fails where those are too many bytes; a third as many always fit.
        if all(len(chunk) <= _CHUNK for chunk in encoded):
            break
    return _COUNT.pack(len(encoded)) + b"".join(map(_framed, encoded))
