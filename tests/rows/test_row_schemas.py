"""Schemas in all their spellings, without Spark."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from row_strategies import schemas

from holdfast.errors import InvalidSchema
from holdfast.rows import arrow_schema, ddl


def test_every_word_for_every_type():
    pairs = {
        pa.bool_(): "boolean",
        pa.int8(): "tinyint byte",
        pa.int16(): "smallint short",
        pa.int32(): "int integer",
        pa.int64(): "bigint long",
        pa.float32(): "float real",
        pa.float64(): "double",
        pa.decimal128(10, 0): "decimal dec numeric decimal(10) numeric(10,0)",
        pa.decimal128(38, 38): "DECIMAL(38,38)",
        pa.string(): "string varchar(3) char(3)",
        pa.binary(): "binary",
        pa.date32(): "date",
        pa.timestamp("us", tz="UTC"): "timestamp timestamp_ltz",
        pa.timestamp("us"): "timestamp_ntz",
    }
    for arrow, words in pairs.items():
        for word in words.split():
            for spelled in (word, word.upper()):
                assert arrow_schema(f"x {spelled}").field(0).type == arrow, spelled


def test_names_nullability_and_nesting():
    schema = arrow_schema(
        "user string, n: long NOT NULL COMMENT 'it''s', `a``b c` array<string>, "
        "m map<string, struct<a:int not null>>, s struct<>"
    )
    assert schema.names == ["user", "n", "a`b c", "m", "s"]
    assert [field.nullable for field in schema] == [True, False, True, True, True]
    assert schema.field("a`b c").type == pa.list_(pa.field("element", pa.string()))
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    assert schema.field("m").type == pa.map_(pa.string(), inner)
    assert schema.field("s").type == pa.struct([])


@given(schemas())
def test_ddl_and_back(schema):
    # DDL cannot say that arrays and maps have no nulls, so those are compared as if they had.
    assert arrow_schema(ddl(schema)) == pa.schema([relaxed(field) for field in schema])


def relaxed(field):
    return pa.field(field.name, relaxed_type(field.type), nullable=field.nullable)


def relaxed_type(data_type):
    if pa.types.is_map(data_type):
        return pa.map_(relaxed_type(data_type.key_type), relaxed_type(data_type.item_type))
    if pa.types.is_list(data_type):
        return pa.list_(pa.field("element", relaxed_type(data_type.value_type)))
    if pa.types.is_struct(data_type):
        return pa.struct([relaxed(field) for field in data_type])
    return data_type


def test_ddl_spells_as_spark_does():
    text = "k string, n bigint not null, `a b` struct<x:tinyint,y:array<int>>, m map<date,decimal(20,3)>"
    assert ddl(arrow_schema(text)) == text


def test_json_with_everything():
    spark_json = {
        "type": "struct",
        "fields": [
            {"name": "k", "type": "string", "nullable": False, "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}},
            {"name": "d", "type": "decimal(20,3)", "nullable": True, "metadata": {}},
            {
                "name": "l",
                "type": {"type": "array", "elementType": "timestamp_ntz", "containsNull": False},
                "nullable": True,
                "metadata": {},
            },
            {
                "name": "m",
                "type": {"type": "map", "keyType": "integer", "valueType": "byte", "valueContainsNull": False},
                "nullable": True,
                "metadata": {},
            },
        ],
    }
    expected = pa.schema(
        [
            pa.field("k", pa.string(), nullable=False),
            pa.field("d", pa.decimal128(20, 3)),
            pa.field("l", pa.list_(pa.field("element", pa.timestamp("us"), nullable=False))),
            pa.field("m", pa.map_(pa.int32(), pa.field("value", pa.int8(), nullable=False))),
        ]
    )
    assert arrow_schema(spark_json) == expected
    assert arrow_schema(json.dumps(spark_json)) == expected


def test_arrow_variants_become_one():
    given_ = pa.schema(
        [
            pa.field("a", pa.large_string(), nullable=False),
            pa.field("b", pa.large_list(pa.field("item", pa.large_binary(), nullable=False))),
            pa.field("c", pa.timestamp("ns", tz="Europe/Vienna")),
            pa.field("d", pa.timestamp("s")),
            pa.field("e", pa.dictionary(pa.int8(), pa.string())),
            pa.field("f", pa.decimal256(20, 3)),
            pa.field("g", pa.struct([pa.field("h", pa.string_view())])),
        ]
    )
    expected = pa.schema(
        [
            pa.field("a", pa.string(), nullable=False),
            pa.field("b", pa.list_(pa.field("element", pa.binary(), nullable=False))),
            pa.field("c", pa.timestamp("us", tz="UTC")),
            pa.field("d", pa.timestamp("us")),
            pa.field("e", pa.string()),
            pa.field("f", pa.decimal128(20, 3)),
            pa.field("g", pa.struct([pa.field("h", pa.string())])),
        ]
    )
    assert arrow_schema(given_) == expected


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("k int, v interval day", "column 'v': type 'interval' cannot be kept in state; accepted are boolean"),
        ("v struct<w: array<variant>>", "column 'v.w': type 'variant'"),
        ("v void", "column 'v': type 'void'"),
        ("v time(6)", "column 'v': type 'time'"),
        ("v string collate UNICODE", "collation is UTF8_BINARY"),
        ("v decimal(39,0)", "column 'v': decimal(39,0): precision 39"),
        ("v decimal(4,5)", "scale 5 is not in 0..4"),
        ("v decimal(1,2,3)", "takes a precision and a scale"),
        ("v varchar", "takes one length"),
        ("v array<int", "column 'v': expected '>', found the end, at character 12"),
        ("v int not", "expected 'NULL', found the end"),
        ("v int comment x", "expected a quoted comment, found 'x'"),
        ("v int $", "unexpected '$', at character 7"),
        ("v int w int", "unexpected 'w'"),
        ("v", "column 'v': expected a type, found the end"),
        ("< int", "expected a column name, found '<'"),
        ("struct<a int> b", "unexpected 'b'"),
        ("{not json", "looks like JSON but is not"),
        ({"type": "array", "elementType": "integer", "containsNull": True}, "a struct of columns, not array<int>"),
        ({"type": "struct", "fields": [{"name": "u", "type": {"type": "udt"}}]}, "column 'u': type 'udt'"),
        ({"type": "struct", "fields": [{"name": "u", "type": {"type": "array"}}]}, "column 'u': not Spark's"),
        ({"type": "struct", "fields": [{"name": "u", "type": "interval day"}]}, "column 'u': type 'interval'"),
        (
            {
                "type": "struct",
                "fields": [{"name": "u", "type": "string", "metadata": {"__COLLATIONS": {"u": "icu.X"}}}],
            },
            "column 'u': a string collated icu.X",
        ),
        (pa.schema([("a", pa.null())]), "column 'a': type 'null'"),
        (pa.schema([("a", pa.uint32())]), "column 'a': type 'uint32'"),
        (pa.schema([("a", pa.list_(pa.duration("us")))]), "column 'a.element': type 'duration[us]'"),
        (pa.schema([("a", pa.decimal256(50, 3))]), "precision 50"),
        (5, "not int: 5"),
        (None, "not NoneType"),
    ],
)
def test_what_is_wrong_is_said(spec, words):
    with pytest.raises(InvalidSchema) as caught:
        arrow_schema(spec)
    assert words in str(caught.value)
