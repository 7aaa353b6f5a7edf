"""Spark's JSON of a schema, as the JVM spells it."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_strategies import schemas

from holdfast.errors import InvalidSchema
from holdfast.rows import arrow_schema, spark_json

# Every kind of character that JSON, Java or Spark might spell in its own way.
names = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('"\\/\b\f\n\r\t\0\x1f\x7f\u2028é漢😀')),
    max_size=8,
)


@st.composite
def renamed(draw, columns):
    schema = draw(columns)
    return pa.schema([field.with_name(draw(names)) for field in schema])


def test_every_word_is_spark_s():
    schema = arrow_schema(
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, j date, "
        "k timestamp, l timestamp_ntz, m decimal(38,18) not null, n array<int>, o map<string,int>, "
        "p struct<q:int not null>, r struct<>"
    )
    words = ["boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date"]
    words += ["timestamp", "timestamp_ntz"]
    simple = [
        f'{{"name":"{name}","type":"{word}","nullable":true,"metadata":{{}}}}'
        for name, word in zip("abcdefghijkl", words, strict=True)
    ]
    rest = [
        '{"name":"m","type":"decimal(38,18)","nullable":false,"metadata":{}}',
        '{"name":"n","type":{"type":"array","elementType":"integer","containsNull":true},"nullable":true,"metadata":{}}',
        '{"name":"o","type":{"type":"map","keyType":"string","valueType":"integer","valueContainsNull":true},'
        '"nullable":true,"metadata":{}}',
        '{"name":"p","type":{"type":"struct","fields":[{"name":"q","type":"integer","nullable":false,"metadata":{}}]},'
        '"nullable":true,"metadata":{}}',
        '{"name":"r","type":{"type":"struct","fields":[]},"nullable":true,"metadata":{}}',
    ]
    assert spark_json(schema) == '{"type":"struct","fields":[' + ",".join(simple + rest) + "]}"


@given(renamed(schemas()))
def test_json_and_back(schema):
    assert arrow_schema(spark_json(schema)) == schema


def test_what_spark_has_once_is_spelled_once():
    many = pa.schema({"s": pa.large_string(), "t": pa.timestamp("ns", tz="Asia/Tokyo"), "l": pa.large_list(pa.int8())})
    assert spark_json(many) == spark_json(arrow_schema("s string, t timestamp, l array<tinyint>"))


def test_a_void_column_is_spelled_and_other_types_are_refused():
    assert '"name":"d","type":"void","nullable":true' in spark_json(pa.schema({"d": pa.null()}))
    with pytest.raises(InvalidSchema, match="column 'u'.*uint8"):
        spark_json(pa.schema({"u": pa.uint8()}))


@pytest.mark.spark
def test_the_jvm_spells_every_schema_like_this(spark):
    from_json = spark._jvm.org.apache.spark.sql.types.DataType.fromJson

    @settings(
        max_examples=200,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(renamed(schemas()))
    def check(schema):
        # The JVM reads our text and spells the schema itself; that it read the right one is checked by reading back.
        theirs = from_json(spark_json(schema)).json()
        assert theirs == spark_json(schema)
        assert arrow_schema(theirs) == schema

    check()


@pytest.mark.spark
def test_a_schema_that_spark_made_itself_is_spelled_alike(spark):
    frame = spark.sql(
        "select 1 as `a\"b\tc`, array(1) as n, array(1, null) as m, map('k', 1) as o, map('k', n) as p"
        " from values (1) t(n)"
    )
    more = spark.sql("select named_struct('q', 1, 'r', null) as s, cast(1 as decimal(5,2)) as d, null as v")
    for plain in (frame, more.drop("s", "v")):
        assert spark_json(arrow_schema(plain.schema)) == plain._jdf.schema().json()
    assert spark_json(pa.schema({"v": pa.null()})) == more.select("v")._jdf.schema().json()
