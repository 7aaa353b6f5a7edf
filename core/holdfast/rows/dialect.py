"""Spark's DDL spelling of a schema, read and written without a JVM: executors have none to ask.

The grammar is the part of Spark's that describes columns: ``name type [NOT NULL] [COMMENT '...']``, separated
by commas, with an optional colon after the name. Keywords are case-insensitive and never reserved.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import pyarrow as pa

from holdfast.errors import InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Iterable

ACCEPTED = (
    "boolean, tinyint/byte, smallint/short, int/integer, bigint/long, float/real, double, "
    "decimal(p,s) with p <= 38, string, varchar(n), char(n), binary, date, timestamp, timestamp_ntz, "
    "array<...>, map<..., ...>, struct<...>"
)
"""What an error message lists as the types that state can hold."""

MAX_DECIMAL_DIGITS = 38

_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = frozenset({"decimal", "dec", "numeric"})
_SIZED_TEXT = frozenset({"varchar", "char", "character"})

_TOKEN = re.compile(
    r"""
      (?P<space>   (?:\s | --[^\n]* | /\*.*?\*/)+ )
    | (?P<quoted>  `(?:[^`]|``)*` )
    | (?P<text>    '(?:\\.|''|[^'\\])*' | "(?:\\.|""|[^"\\])*" | [rR]'[^']*' | [rR]"[^"]*" )
    | (?P<word>    [A-Za-z0-9_]+ )
    | (?P<mark>    [<>(),:] )
    """,
    re.VERBOSE | re.DOTALL,
)
# A name that needs no backticks for any reader, Spark's strictest mode included.
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def keyword(self) -> str:
        """The token in lower case if it may be a keyword or a mark, else nothing."""
        return self.text.lower() if self.kind in ("word", "mark") else ""


def is_simple(data_type: pa.DataType) -> bool:
    """Whether this is the Arrow type of one of Spark's types without parameters."""
    return data_type in _SPELLED


def list_of(element: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """Arrow's list with the child name that Spark and Parquet use, so that equal types compare equal."""
    return pa.list_(pa.field("element", element, nullable=nullable))


def map_of(key: pa.DataType, value: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """Arrow's map; a map key is never null."""
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value, nullable=nullable))


def decimal_of(precision: int, scale: int) -> pa.DataType:
    """Arrow's decimal within Spark's limits; ValueError says what is wrong."""
    if not 1 <= precision <= MAX_DECIMAL_DIGITS:
        raise ValueError(f"precision {precision} is not in 1..{MAX_DECIMAL_DIGITS}")
    if not 0 <= scale <= precision:
        raise ValueError(f"scale {scale} is not in 0..{precision}, the precision")
    return pa.decimal128(precision, scale)


def parse_columns(text: str) -> list[pa.Field]:
    """Read a whole DDL string: the columns of a table, or one ``struct<...>`` that stands for them."""
    parser = _Parser(text)
    if [t.keyword for t in parser.tokens[:2]] == ["struct", "<"]:
        row = parser.data_type()
        parser.end()
        return list(row)
    fields = parser.columns(closing="")
    parser.end()
    return fields


def parse_type(text: str, column: str) -> pa.DataType:
    """Read the DDL of one type; `column` is for the message if it is not one."""
    parser = _Parser(text, (column,))
    parsed = parser.data_type()
    parser.end()
    return parsed


class _Parser:
    """Recursive descent over the tokens of one DDL string."""

    def __init__(self, text: str, path: tuple[str, ...] = ()) -> None:
        self._text = text
        self._path = path
        self.tokens = list(self._tokenize())
        self._next = 0

    def _tokenize(self) -> Iterable[_Token]:
        at = 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None:
                self._fail(f"unexpected {self._text[at]!r}", at)
            if match.lastgroup != "space":
                yield _Token(str(match.lastgroup), match.group(), at)
            at = match.end()
        yield _Token("end", "", at)

    def columns(self, closing: str) -> list[pa.Field]:
        """Read columns up to (not including) the closing mark; "" is the end of the text."""
        fields: list[pa.Field] = []
        if self._peek().keyword == closing and self._peek().kind in ("mark", "end"):
            return fields
        while True:
            fields.append(self._column())
            if not self._take(","):
                return fields

    def data_type(self) -> pa.DataType:
        token = self._peek()
        if token.kind != "word":
            self._fail(f"expected a type, found {_shown(token)}", token.at)
        self._next += 1
        word = token.keyword
        if word == "string":
            return self._collated(token)
        if word == "timestamp":
            return self._timestamp()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in _DECIMAL:
            return self._decimal(token)
        if word in _SIZED_TEXT:
            if len(self._numbers()) != 1:
                self._fail(f"{word} takes one length, as in {word}(10)", token.at)
            return self._collated(token)
        if word in ("array", "map", "struct"):
            return self._nested(word)
        return self._fail(f"type {token.text!r} cannot be kept in state; accepted are {ACCEPTED}", token.at)

    def end(self) -> None:
        token = self._peek()
        if token.kind != "end":
            self._fail(f"unexpected {_shown(token)}", token.at)

    def _column(self) -> pa.Field:
        token = self._peek()
        if token.kind not in ("word", "quoted"):
            self._fail(f"expected a column name, found {_shown(token)}", token.at)
        self._next += 1
        name = token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
        outer, self._path = self._path, (*self._path, name)
        self._take(":")
        data_type = self.data_type()
        nullable = True
        if self._take("not"):
            self._expect("null")
            nullable = False
        if self._take("comment"):
            # The comment itself has no place in a row; it is read so that a pasted schema is accepted.
            token = self._peek()
            if token.kind != "text":
                self._fail(f"expected a quoted comment, found {_shown(token)}", token.at)
            while self._peek().kind == "text":
                self._next += 1
        self._path = outer
        return pa.field(name, data_type, nullable=nullable)

    def _nested(self, word: str) -> pa.DataType:
        self._expect("<")
        nested: pa.DataType
        if word == "array":
            nested = list_of(self.data_type())
        elif word == "map":
            key = self.data_type()
            self._expect(",")
            nested = map_of(key, self.data_type())
        else:
            nested = pa.struct(self.columns(closing=">"))
        self._expect(">")
        return nested

    def _decimal(self, token: _Token) -> pa.DataType:
        numbers = self._numbers()
        if len(numbers) > 2:
            self._fail(f"{token.text} takes a precision and a scale", token.at)
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        try:
            return decimal_of(precision, scale)
        except ValueError as error:
            return self._fail(f"{token.text}({precision},{scale}): {error}", token.at)

    def _numbers(self) -> list[int]:
        """Read ``(1, 2)`` if it is there."""
        numbers: list[int] = []
        if not self._take("("):
            return numbers
        while True:
            token = self._peek()
            if not (token.text.isascii() and token.text.isdigit()):
                self._fail(f"expected a number, found {_shown(token)}", token.at)
            self._next += 1
            numbers.append(int(token.text))
            if not self._take(","):
                self._expect(")")
                return numbers

    def _timestamp(self) -> pa.DataType:
        """Read what may follow ``timestamp`` in standard SQL."""
        local = self._take("with")
        if local:
            self._expect("local")
        if local or self._take("without"):
            self._expect("time")
            self._expect("zone")
            return _SIMPLE["timestamp" if local else "timestamp_ntz"]
        return _SIMPLE["timestamp"]

    def _collated(self, token: _Token) -> pa.DataType:
        if self._take("collate"):
            collation = self._peek()
            self._next += 1
            if collation.keyword != "utf8_binary":
                # Equal keys must be equal bytes, which other collations deny.
                self._fail(
                    f"type '{token.text} collate {collation.text}' cannot be kept in state; "
                    "the accepted collation is UTF8_BINARY",
                    token.at,
                )
        return pa.string()

    def _peek(self) -> _Token:
        return self.tokens[min(self._next, len(self.tokens) - 1)]

    def _take(self, keyword: str) -> bool:
        found = self._peek().keyword == keyword
        self._next += found
        return found

    def _expect(self, keyword: str) -> None:
        token = self._peek()
        if not self._take(keyword):
            self._fail(f"expected {keyword.upper()!r}, found {_shown(token)}", token.at)

    def _fail(self, problem: str, at: int) -> NoReturn:
        column = f"column {'.'.join(self._path)!r}: " if self._path else ""
        raise InvalidSchema(f"{column}{problem}, at character {at + 1} of {self._text!r}")


def _shown(token: _Token) -> str:
    return repr(token.text) if token.text else "the end"


_SPELLED = {
    **{data_type: name for name, data_type in reversed(_SIMPLE.items())},
    # Spark's own simpleString prefers these over the synonyms that come first above.
    pa.int8(): "tinyint",
    pa.int32(): "int",
    pa.int64(): "bigint",
}


def ddl(schema: pa.Schema) -> str:
    """Spell a schema from `arrow_schema` as DDL.

    DDL has no word for arrays and maps without nulls; that part of the schema does not survive.
    """
    return ", ".join(_column_ddl(field, " ") for field in schema)


def type_ddl(data_type: pa.DataType) -> str:
    """Spell one type as Spark does; a type that Spark does not have keeps Arrow's name."""
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_map(data_type):
        return f"map<{type_ddl(data_type.key_type)},{type_ddl(data_type.item_type)}>"
    if pa.types.is_list(data_type):
        return f"array<{type_ddl(data_type.value_type)}>"
    if pa.types.is_struct(data_type):
        return f"struct<{','.join(_column_ddl(field, ':') for field in data_type)}>"
    if pa.types.is_null(data_type):
        return "void"  # not in the table: no schema that people write may have it
    return _SPELLED.get(data_type, str(data_type))


def _column_ddl(field: pa.Field, between: str) -> str:
    name = field.name if _PLAIN_NAME.fullmatch(field.name) else "`" + field.name.replace("`", "``") + "`"
    return f"{name}{between}{type_ddl(field.type)}{'' if field.nullable else ' not null'}"
