"""Byte equality with the JVM, on schemas and values that Hypothesis chooses."""

import datetime as dt
import importlib.metadata
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jvm_rows import jvm_rows
from row_strategies import batches, schemas

from holdfast.rows import RowCodec, SortKeyCodec, arrow_schema

pytestmark = pytest.mark.spark

# Byte equality holds for every supported Spark; how DDL is read and schemas are translated has grown since 4.0, and
# ours follows the newest.
newest_schemas = pytest.mark.skipif(
    tuple(map(int, importlib.metadata.version("pyspark").split(".")[:2])) < (4, 3),
    reason="schemas are compared with those of Spark 4.3",
)

# The session is shared on purpose, and starting an example costs a compilation in the JVM.
thorough = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_rows_are_spark_s_rows_byte_for_byte(spark):
    @thorough
    @given(batches())
    def check(batch):
        codec = RowCodec(batch.schema)
        expected = jvm_rows(spark, batch)
        assert [row.hex() for row in codec.encode(batch).to_pylist()] == [row.hex() for row in expected]
        # Encoding is one-to-one, so rows that encode alike are alike, NaNs and far dates included.
        decoded = codec.decode(expected)
        decoded.validate(full=True)
        assert decoded.schema == batch.schema
        assert codec.encode(decoded).to_pylist() == expected

    check()


def test_more_columns_than_one_null_word_has_bits(spark):
    columns = {f"c{i}": pa.array([None if (i + row) % 3 else i for row in range(4)], pa.int32()) for i in range(130)}
    batch = pa.record_batch({**columns, "s": pa.array(["x", None, "", "yy"])})
    assert RowCodec(batch.schema).encode(batch).to_pylist() == jvm_rows(spark, batch)


def test_long_arrays_have_several_null_words(spark):
    long = [[None if i % 7 == 0 else i for i in range(count)] for count in (0, 1, 63, 64, 65, 128, 200)]
    batch = pa.record_batch(
        {
            "n": pa.array(long, pa.list_(pa.int16())),
            "s": pa.array([[None if i is None else str(i) for i in row] for row in long], pa.list_(pa.string())),
        }
    )
    assert RowCodec(batch.schema).encode(batch).to_pylist() == jvm_rows(spark, batch)


def test_signalling_nans_and_negative_zero_keep_their_bits(spark):
    doubles = np.array([0x7FF0000000000001, 0xFFF8000000000000, 0x8000000000000000, 0x7FF8DEADBEEF0000], "<u8")
    floats = np.array([0x7F800001, 0xFFC00000, 0x80000000, 0x7FC0BEEF], "<u4")
    arrays = [pa.array(doubles.view("<f8")), pa.array(floats.view("<f4"))]
    lists = [pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), array) for array in arrays]
    batch = pa.RecordBatch.from_arrays([*arrays, *lists], ["d", "f", "ds", "fs"])
    assert RowCodec(batch.schema).encode(batch).to_pylist() == jvm_rows(spark, batch)


@newest_schemas
def test_ddl_is_read_as_spark_reads_it(spark):
    from pyspark.sql.types import StructType

    @thorough
    @given(ddl_texts())
    @example("")
    @example("struct<a int, b: string>")
    @example("a int -- note\n, /* more */ b string")
    @example("a timestamp without time zone, b timestamp with local time zone")
    @example("`a``b` struct<>, `` int, 1a int COMMENT 'it''s' \"twice\"")
    @example("a string collate UTF8_BINARY, b varchar(3) collate utf8_binary, c character(2)")
    def check(text):
        assert arrow_schema(text) == arrow_schema(StructType.fromDDL(text))

    check()


@pytest.mark.parametrize(
    "text",
    [
        "a bool",
        "a char",
        "a decimal(5,7)",
        "a decimal(39,0)",
        "a decimal()",
        "a decimal(-3)",
        "a int comment 'x' not null",
        "a int null",
        "a int default 3",
        "a int,",
        "a-b int",
        "é int",
        "a float(3)",
        "a `int`",
        "a array<int not null>",
        "a array<>",
        "a map<int>",
        "a struct<b>",
    ],
)
def test_what_spark_cannot_read_neither_can_we(spark, text):
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    from holdfast.errors import InvalidSchema

    with pytest.raises(PySparkException):
        StructType.fromDDL(text)
    with pytest.raises(InvalidSchema):
        arrow_schema(text)


@newest_schemas
def test_struct_type_and_its_json_are_accepted(spark):
    from pyspark.sql import types as t

    collated = t.StructType([t.StructField("k", t.ArrayType(t.StringType("UNICODE_CI")))])
    from holdfast.errors import InvalidSchema

    with pytest.raises(InvalidSchema, match=r"'k'.*UNICODE_CI"):
        arrow_schema(collated)

    @thorough
    @given(schemas())
    def check(schema):
        from pyspark.sql.pandas.types import from_arrow_schema

        struct_type = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        assert arrow_schema(struct_type) == schema
        assert arrow_schema(struct_type.json()) == schema

    check()


def test_sort_keys_order_as_spark_orders(spark):
    nan = float("nan")
    batch = pa.record_batch(
        {
            "d": pa.array([nan, -0.0, 0.0, None, float("inf"), -1.5, -float("inf"), 5e-324]),
            "s": pa.array(["", "a", "a\0", "ab", None, "é", "z", "\U0001f600"]),
            "m": pa.array([Decimal(n) for n in (-1, 0, 1, 10**29, -(10**29), 5, 6, 7)], pa.decimal128(30, 0)),
            "t": pa.array(
                [dt.date(1969, 12, 31), dt.date(1970, 1, 1), None, *[dt.date(2000, 1, n) for n in range(1, 6)]]
            ),
            "x": pa.array([None, *({"a": None if n % 2 else n, "b": n % 3 == 0} for n in range(-3, 4))]),
        }
    ).append_column("row", pa.array(range(8)))
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    for column in "dsmtx":
        keys = SortKeyCodec(batch.schema, [column, "row"]).encode(batch).to_pylist()
        ours = sorted(range(8), key=keys.__getitem__)
        assert ours == [row["row"] for row in frame.orderBy(column, "row").select("row").collect()], column


WORDS = [
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double"),
    *("decimal", "dec(7)", "numeric(38, 18)", "decimal( 3 , 3 )"),
    *("string", "varchar(10)", "char(3)", "character(1)", "binary"),
    *("date", "timestamp", "timestamp_ltz", "timestamp_ntz"),
]


def ddl_texts():
    cased = st.sampled_from([str.lower, str.upper, str.title])
    leaf = st.builds(lambda case, word: case(word), cased, st.sampled_from(WORDS))
    # A name may begin with a digit, but Spark takes some of those ("1e5", "2L") for numbers.
    plain = st.from_regex("[abXY_][abXY_019]{0,4}", fullmatch=True)
    quoted = st.text("ab` .,<>:é'\"", min_size=1, max_size=6).map(lambda n: "`" + n.replace("`", "``") + "`")
    name = st.one_of(plain, quoted, st.sampled_from(["struct", "int", "not", "comment", "timestamp"]))
    space = st.sampled_from([" ", "  ", "\n", "\t "])
    ending = st.sampled_from(["", " not null", " NOT NULL comment 'it''s'", ' COMMENT "a \\" b, c int"'])
    between = st.sampled_from([" ", ": ", ":", " : "])

    def column(inner):
        return st.builds("{}{}{}{}".format, name, between, inner, ending)

    def nest(inner):
        return st.one_of(
            st.builds("array<{}>".format, inner),
            st.builds("MAP<{},{}{}>".format, leaf, space, inner),
            st.lists(column(inner), max_size=3).map(lambda c: f"struct<{', '.join(c)}>"),
        )

    types = st.recursive(leaf, nest, max_leaves=6)
    return st.lists(column(types), min_size=1, max_size=4).map(", ".join)
