"""State schema files: Spark's, ours, damaged ones, and which change of a schema is allowed."""

import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.checkpoint.schema_files import (
    StateSchema,
    check_compatible,
    decode_state_schema,
    encode_state_schema,
    read_state_schema,
    refuse_column_families,
    write_state_schema,
)
from holdfast.checkpoint.storage import Folder
from holdfast.errors import CorruptState, InvalidRequest, InvalidSchema, UnsupportedOperation
from holdfast.rows import arrow_schema, ddl, spark_json

# The strategies of the tests of rows.
sys.path.append(str(Path(__file__).parents[1] / "rows"))
from row_strategies import schemas, types

CHECKPOINTS = Path(__file__).parents[3] / "shared" / "spark-checkpoints"

WRITTEN_BY_SPARK = {
    "3.2.0-session-window-with-repartition/state/0/0": (
        "sessionId string, userId string, sessionStartTime timestamp not null",
        "session_window struct<start:timestamp,end:timestamp> not null, sessionId string, userId string, "
        "count bigint not null",
    ),
    "3.2.0-streaming-aggregate-with-repartition/state/0/0": (
        "key1 int not null, key2 int not null",
        "count bigint not null",
    ),
    "3.3.0-streaming-deduplication/state/0/0": ("_1 string", "_1 string, _2 int not null"),
    "3.5.1-streaming-join/state/0/0/left-keyToNumValues": ("field0 int not null", "value bigint"),
    "3.5.1-streaming-join/state/0/0/left-keyWithIndexToValue": (
        "field0 int not null, index bigint",
        "leftId int not null, leftTime timestamp not null, matched boolean",
    ),
    "3.5.1-streaming-join/state/0/0/right-keyToNumValues": ("field0 int not null", "value bigint"),
    "3.5.1-streaming-join/state/0/0/right-keyWithIndexToValue": (
        "field0 int not null, index bigint",
        "rightId int not null, rightTime timestamp not null, matched boolean",
    ),
}
"""Every schema file in the stored checkpoints of Spark, and what it says."""

# What Spark 4.3 wrote for ``groupBy("k").count()``.
GOLDEN = (
    b'\x00\x02v2\x00\x00\x00\x01\x00X{"type":"struct","fields":[{"name":"k","type":"integer","nullable":true,"metadata":'
    b'{}}]}\x00\x00\x00\x01\x00Y{"type":"struct","fields":[{"name":"count","type":"long","nullable":true,"metadata":{}}]}'
)
AGGREGATION = StateSchema(arrow_schema("k int"), arrow_schema("count long"))

# How the file of a join in format 3 begins in Spark 4.3.
V3 = b"\x00\x02v3\x00\x00\x00\x04\x00\x13left-keyToNumValues\x00\x00\x00\x00\x00\x01\x00\xa0"

ODD_NAME = 'é"\\/\x01\x1f\x7f\t\u2028😀'


def schema(key, value="n long"):
    return StateSchema(arrow_schema(key), arrow_schema(value))


@pytest.fixture
def store(tmp_path):
    return Folder.open(str(tmp_path / "state/0/0"))


class TestFormat:
    def test_golden_bytes_of_version_2(self):
        assert encode_state_schema(AGGREGATION) == GOLDEN
        assert decode_state_schema(GOLDEN, "x") == AGGREGATION

    def test_golden_bytes_of_version_1(self):
        data = GOLDEN.replace(b"v2", b"v1").replace(b"\x00\x00\x00\x01", b"")
        assert encode_state_schema(AGGREGATION, version=1) == data
        assert decode_state_schema(data, "x") == AGGREGATION

    def test_other_versions_are_not_written(self):
        with pytest.raises(InvalidRequest, match="no version 3"):
            encode_state_schema(AGGREGATION, version=3)

    @pytest.mark.parametrize("url", ["memory://schema-files/{}/0", "{}/with space/0"])
    def test_written_and_read_where_spark_looks(self, url, tmp_path):
        folder = Folder.open(url.format(tmp_path))
        assert read_state_schema(folder) is None
        write_state_schema(folder, AGGREGATION)
        assert folder.child("_metadata").read("schema") == GOLDEN
        assert read_state_schema(folder) == AGGREGATION
        write_state_schema(folder, schema("k long"))
        assert read_state_schema(folder) == schema("k long")

    def test_metadata_of_columns_survives_but_makes_no_difference(self):
        data = GOLDEN.replace(b'"nullable":true,"metadata":{}}]}\x00', b'"nullable":true,"metadata":{"a":1}}]}\x00')
        data = data.replace(b"\x00X{", b"\x00" + bytes([ord("X") + len('"a":1')]) + b"{")
        read = decode_state_schema(data, "x")
        assert read == AGGREGATION
        assert hash(read) == hash(AGGREGATION)
        assert encode_state_schema(read) == data
        assert json.loads(read.key_json)["fields"][0]["metadata"] == {"a": 1}
        assert read.value_json == spark_json(AGGREGATION.value)

    def test_names_in_java_s_utf_8(self):
        odd = StateSchema(pa.schema({ODD_NAME: pa.int32()}), AGGREGATION.value)
        data = encode_state_schema(odd)
        # As Spark 4.3 wrote it: a surrogate pair, and upper-case escapes.
        assert b'"\xc3\xa9\\"\\\\/\\u0001\\u001F\x7f\\t\xe2\x80\xa8\xed\xa0\xbd\xed\xb8\x80"' in data
        assert decode_state_schema(data, "x") == odd

    @pytest.mark.parametrize("filler", ["x", "é", "漢", "😀", "x😀"])
    @pytest.mark.parametrize("length", [21_800, 32_750, 65_500, 65_535, 140_000])
    def test_long_schemas_are_cut(self, filler, length):
        for shift in range(3):
            long = StateSchema(
                pa.schema({"y" * shift + filler * (length // len(filler)): pa.int32()}), AGGREGATION.value
            )
            assert decode_state_schema(encode_state_schema(long), "x") == long

    def test_version_1_has_no_room_for_long_schemas(self):
        long = StateSchema(pa.schema({"é" * 33_000: pa.int32()}), AGGREGATION.value)
        with pytest.raises(InvalidSchema, match="write version 2"):
            encode_state_schema(long, version=1)

    @given(schemas(), schemas(), st.sampled_from([1, 2]))
    def test_every_schema_round_trips(self, key, value, version):
        both = StateSchema(key, value)
        assert decode_state_schema(encode_state_schema(both, version=version), "x") == both

    def test_void_columns_and_empty_rows(self):
        """Spark's deduplication has no values, and its limit has no keys."""
        void = StateSchema(pa.schema({"__dummy__": pa.null()}), pa.schema([]))
        assert '"__dummy__","type":"void"' in void.key_json
        assert decode_state_schema(encode_state_schema(void), "x") == void
        older = encode_state_schema(StateSchema(void.key, void.value, (void.key_json.replace("void", "null"), "{}")))
        with pytest.raises(CorruptState):
            decode_state_schema(older, "x")
        older = StateSchema.from_json(void.key_json.replace("void", "null"), void.value_json, "x")
        assert older == void

    def test_types_that_state_cannot_hold_are_no_damage(self):
        for word in (
            "variant",
            "interval day to second",
            "time(6)",
            {"type": "array", "elementType": "void", "containsNull": True},
        ):
            column = {"name": "c", "type": word, "nullable": True, "metadata": {}}
            text = json.dumps({"type": "struct", "fields": [column]})
            with pytest.raises(InvalidSchema, match=r"^here: key: column 'c.*cannot be kept in state"):
                StateSchema.from_json(text, AGGREGATION.value_json, "here")
        collated = {
            "name": "c",
            "type": "string",
            "nullable": True,
            "metadata": {"__COLLATIONS": {"c": "icu.UNICODE_CI"}},
        }
        with pytest.raises(InvalidSchema, match=r"^here: key: .*UNICODE_CI"):
            StateSchema.from_json(json.dumps({"type": "struct", "fields": [collated]}), AGGREGATION.value_json, "here")
        udt = {"type": "udt", "class": "a.B", "pyClass": None, "sqlType": "integer"}
        column = {"name": "c", "type": udt, "nullable": True, "metadata": {}}
        with pytest.raises(InvalidSchema, match=r"^here: value: column 'c'.*udt"):
            StateSchema.from_json(AGGREGATION.key_json, json.dumps({"type": "struct", "fields": [column]}), "here")


class TestColumnFamilies:
    def test_version_3_is_refused_by_name(self):
        with pytest.raises(UnsupportedOperation, match=r"^here/schema is in format v3: .*transformWithState"):
            decode_state_schema(V3, "here/schema")

    def test_an_operator_with_column_families_is_refused(self, tmp_path):
        operator = Folder.open(str(tmp_path / "state/0"))
        refuse_column_families(operator)
        operator.child("0").publish("1.delta", b"")
        refuse_column_families(operator)
        operator.child("_stateSchema", "default").publish("0_d1f55996", V3)
        with pytest.raises(UnsupportedOperation, match="state/0 has _stateSchema: .*column families"):
            refuse_column_families(operator)


class TestDamage:
    @pytest.fixture(params=[1, 2])
    def data(self, request):
        both = schema("k int not null, t timestamp", "a array<string>, m map<string, struct<x:double>>")
        return encode_state_schema(both, version=request.param)

    def test_every_truncation_is_found(self, data):
        for length in range(len(data)):
            with pytest.raises(CorruptState, match="^here/schema"):
                decode_state_schema(data[:length], "here/schema")

    def test_every_flipped_bit_is_found_or_harmless(self, data):
        intact = decode_state_schema(data, "x")
        messages = []
        for position in range(len(data)):
            for bit in range(8):
                flipped = bytearray(data)
                flipped[position] ^= 1 << bit
                try:
                    read = decode_state_schema(bytes(flipped), "here/schema")
                except CorruptState as error:
                    messages.append(str(error))
                except UnsupportedOperation:
                    assert flipped[:4] == b"\x00\x02v3"
                else:
                    # The file has no checksum: a letter of a name may change, nothing else.
                    check_compatible(read, intact, "x")
                    check_compatible(intact, read, "x")
        assert len(messages) > len(data) * 6
        assert all(message.startswith("here/schema") for message in messages)

    def test_bytes_too_many_are_found(self, data):
        with pytest.raises(CorruptState, match=r"^here/schema is damaged at byte \d+: 3 bytes too many"):
            decode_state_schema(data + b"abc", "here/schema")

    @pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
    def test_senseless_counts_are_found(self, count):
        with pytest.raises(CorruptState, match="^here/schema is damaged"):
            decode_state_schema(GOLDEN.replace(b"\x00\x00\x00\x01", count), "here/schema")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "null",
            "[]",
            '"integer"',
            "[" * 60_000,
            '{"type":"array","elementType":' * 2000,
            '{"type":"struct","fields":[' + '{"name":"a","type":{"type":"struct","fields":[' * 1000,
            '{"type":"struct"}',
            '{"type":"struct","fields":{}}',
            '{"type":"struct","fields":["a"]}',
            '{"type":"struct","fields":[{"name":"a","type":"integer","nullable":true}]}',
            '{"type":"struct","fields":[{"name":"a","type":"integer","nullable":1,"metadata":{}}]}',
            '{"type":"struct","fields":[{"name":"a","type":"integer","nullable":true,"metadata":[]}]}',
            '{"type":"struct","fields":[{"name":1,"type":"integer","nullable":true,"metadata":{}}]}',
            '{"type":"struct","fields":[{"name":"\\ud800","type":"integer","nullable":true,"metadata":{}}]}',
            '{"type":"struct","fields":[{"name":"a","type":"Integer","nullable":true,"metadata":{}}]}',
            '{"type":"struct","fields":[{"name":"a","type":"array<int>","nullable":true,"metadata":{}}]}',
            '{"type":"struct","fields":[{"name":"a","type":"decimal(39,0)","nullable":true,"metadata":{}}]}',
            '{"type":"struct","fields":[{"name":"a","type":{"type":"array","elementType":"integer"},"nullable":true,"metadata":{}}]}',
            '{"type":"struct","fields":[{"name":"a","type":{"type":"mop"},"nullable":true,"metadata":{}}]}',
            '{"type":"struct","fields":[{"name":"a","type":7,"nullable":true,"metadata":{}}]}',
        ],
    )
    def test_what_is_no_schema_is_damage(self, text):
        data = encode_state_schema(
            StateSchema(AGGREGATION.key, AGGREGATION.value, (text or " ", AGGREGATION.value_json))
        )
        with pytest.raises(CorruptState, match="^here/schema: key is damaged"):
            decode_state_schema(data, "here/schema")

    def test_deep_nesting_is_refused_without_a_crash(self):
        deep = '{"type":"array","elementType":' * 5000 + '"integer"' + ',"containsNull":true}' * 5000
        column = f'{{"type":"struct","fields":[{{"name":"a","type":{deep},"nullable":true,"metadata":{{}}}}]}}'
        with pytest.raises(CorruptState, match="here: key"):
            StateSchema.from_json(column, AGGREGATION.value_json, "here")

    def test_bytes_that_java_does_not_write(self):
        for wrong in (b"\xf0\x9f\x98\x80", b"\xed\xa0\xbdabc"[:4], b"\xc1\x81ab", b"\xffabc"):
            data = GOLDEN.replace(b'"k"', b'"k' + wrong + b'"').replace(b"\x00X{", b"\x00\\{", 1)
            with pytest.raises(CorruptState, match="^here/schema is damaged"):
                decode_state_schema(data, "here/schema")

    def test_the_file_is_named_when_read_from_a_folder(self, store):
        store.child("_metadata").publish("schema", GOLDEN[:50])
        with pytest.raises(CorruptState, match=r"state/0/0/_metadata/schema is damaged"):
            read_state_schema(store)


class TestCompatibility:
    @pytest.mark.parametrize(
        ("stored", "new"),
        [
            ("k int", "k int"),
            ("k int, l string", "other int, names string"),
            ("k int, l string", "l int, k string"),
            ("k int", "k int not null"),
            ("s struct<a:int,b:string>", "s struct<c:int not null,d:string>"),
            ("a array<struct<x:int>>", "b array<struct<y:int>>"),
            ("k string", "k varchar(3)"),
        ],
    )
    def test_names_may_change_and_nulls_may_be_ruled_out(self, stored, new):
        check_compatible(schema(stored), schema(new), "x")
        check_compatible(schema("k int", stored), schema("k int", new), "x")

    def test_arrays_and_maps_may_rule_out_nulls_only(self):
        def both(nullable):
            array = pa.list_(pa.field("element", pa.int32(), nullable=nullable))
            mapped = pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=nullable))
            return StateSchema(pa.schema({"a": array, "m": mapped}), AGGREGATION.value)

        check_compatible(both(True), both(False), "x")
        with pytest.raises(InvalidSchema, match="key.a.element may be null, stored NOT NULL; key.m.value may be null"):
            check_compatible(both(False), both(True), "x")

    @pytest.mark.parametrize(
        ("stored", "new", "problem"),
        [
            ("k int", "k long", "{}.k is bigint, stored int"),
            ("k int not null", "k int", "{}.k may be null, stored NOT NULL"),
            ("k int", "k int, l int", "{} has 2 columns, stored 1 column"),
            ("k int, l int", "k int", "{} has 1 column, stored 2 columns"),
            ("k int, l string", "l string, k int", "{}.l is string, stored int; {}.k is int, stored string"),
            ("k decimal(10,2)", "k decimal(10,3)", "{}.k is decimal(10,3), stored decimal(10,2)"),
            ("k timestamp", "k timestamp_ntz", "{}.k is timestamp_ntz, stored timestamp"),
            ("s struct<a:int>", "s struct<a:int,b:int>", "{}.s has 2 columns, stored 1 column"),
            ("s struct<a:int not null>", "s struct<b:int>", "{}.s.b may be null, stored NOT NULL"),
            ("s struct<a:int>", "s int", "{}.s is int, stored struct<a:int>"),
            ("a array<int>", "a map<int,int>", "{}.a is map<int,int>, stored array<int>"),
            ("m map<int,string>", "m map<long,string>", "{}.m.key is bigint, stored int"),
        ],
    )
    def test_other_changes_are_refused_with_both_schemas_and_the_way_out(self, stored, new, problem):
        for side, before, after in (
            ("key", schema(stored), schema(new)),
            ("value", schema("k int", stored), schema("k int", new)),
        ):
            with pytest.raises(InvalidSchema) as refused:
                check_compatible(before, after, "file:/check point/state/0/0")
            message = str(refused.value)
            assert message.startswith("the state in file:/check point/state/0/0 does not fit")
            assert problem.replace("{}", side) in message
            for shown in (before, after):
                assert f"key ({ddl(shown.key)}), value ({ddl(shown.value)})" in message
            assert message.endswith("or start with a new checkpoint.")

    def test_key_and_value_are_reported_together(self):
        with pytest.raises(InvalidSchema, match="key.k is bigint, stored int; value.n is int, stored bigint"):
            check_compatible(schema("k int"), schema("k long", "n int"), "x")


@pytest.mark.skipif(not CHECKPOINTS.is_dir(), reason="the stored checkpoints of Spark are not beside the repository")
class TestStoredCheckpoints:
    @pytest.mark.parametrize("name", WRITTEN_BY_SPARK)
    def test_says_what_spark_meant(self, name):
        folder = Folder.open(str(CHECKPOINTS / f"checkpoint-version-{name}"))
        read = read_state_schema(folder)
        assert read == schema(*WRITTEN_BY_SPARK[name])
        assert encode_state_schema(read) == folder.child("_metadata").read("schema")

    def test_that_is_all_of_them(self):
        files = CHECKPOINTS.glob("*/state/**/_metadata/schema")
        found = {str(file.parents[1].relative_to(CHECKPOINTS)).removeprefix("checkpoint-version-") for file in files}
        assert found == set(WRITTEN_BY_SPARK)

    def test_none_before_spark_wrote_any(self):
        assert read_state_schema(Folder.open(str(CHECKPOINTS / "checkpoint-version-2.1.0/state/0/0"))) is None


class Query:
    """A stateful query over files of numbers, restarted as often as a test likes."""

    def __init__(self, spark, folder):
        self._spark, self._folder, self._inputs = spark, folder, 0
        (folder / "in").mkdir(parents=True)
        self.store = Folder.open(str(folder / "checkpoint/state/0/0"))

    def source(self, columns="k int, v long, t timestamp"):
        return self._spark.readStream.schema(columns).json(str(self._folder / "in"))

    def run(self, frame, mode="update"):
        self._inputs += 1
        row = {"k": self._inputs % 2, "v": self._inputs, "t": "2024-01-01T00:00:00"}
        (self._folder / f"in/{self._inputs}.json").write_text(json.dumps(row) + "\n")
        writer = frame.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self._folder / "checkpoint")).start().awaitTermination()

    def state(self):
        return self._spark.read.format("statestore").load(str(self._folder / "checkpoint"))

    def files(self, name="schema"):
        return sorted((self._folder / "checkpoint/state").rglob(name))


NULLABLE_OUTPUT = "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled"


@pytest.fixture
def query(spark, tmp_path):
    changed = {"spark.sql.shuffle.partitions": "1", NULLABLE_OUTPUT: "false"}
    before = {name: spark.conf.get(name, None) for name in changed}
    for name, value in changed.items():
        spark.conf.set(name, value)
    yield Query(spark, tmp_path)
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.mark.spark
class TestSpark:
    def test_what_spark_writes_is_read_and_rewritten_byte_for_byte(self, spark, query):
        from pyspark.sql import functions as sf

        spark.conf.unset(NULLABLE_OUTPUT)
        query.run(query.source().groupBy("k").agg(sf.count("v"), sf.avg("v")))
        (file,) = query.files()
        assert file == Path(query.store.shown) / "_metadata/schema"
        written = file.read_bytes()
        read = read_state_schema(query.store)
        assert read.key == arrow_schema("k int")
        assert [field.type for field in read.value] == [pa.int64(), pa.float64(), pa.int64()]
        assert encode_state_schema(StateSchema(read.key, read.value)) == written
        write_state_schema(query.store, read)
        assert file.read_bytes() == written

    def test_joins_have_a_file_for_each_named_store(self, spark, query):
        left = query.source().withWatermark("t", "1 second")
        right = query.source("k int, w long, t timestamp").withWatermark("t", "5 seconds")
        query.run(left.join(right, ["k", "t"]), "append")
        assert len(query.files()) == 4
        for file in query.files():
            folder = query.store.child(file.parents[1].name)
            assert encode_state_schema(read_state_schema(folder)) == file.read_bytes()
        read = read_state_schema(query.store.child("right-keyWithIndexToValue"))
        assert ddl(read.value).startswith("k int, w bigint, t timestamp")
        assert '"spark.watermarkDelayMs":5000' in read.value_json

    def test_deduplication_has_void_values(self, query):
        query.run(query.source().dropDuplicates(["k"]), "append")
        read = read_state_schema(query.store)
        assert read.value == pa.schema({"__dummy__": pa.null()})
        assert [encode_state_schema(read)] == [file.read_bytes() for file in query.files()]

    @pytest.mark.parametrize("name", [ODD_NAME, "long" * 20_000, "z" * 66_000 + "é😀"], ids=["odd", "long", "cut"])
    def test_odd_and_long_names(self, query, name):
        from pyspark.sql.types import IntegerType, StructType

        query.run(query.source(StructType().add(name, IntegerType()).add("k", "integer")).groupBy(f"`{name}`").count())
        read = read_state_schema(query.store)
        assert read.key.names == [name]
        assert [encode_state_schema(StateSchema(read.key, read.value))] == [file.read_bytes() for file in query.files()]

    def test_spark_goes_on_with_a_schema_file_of_ours(self, query):
        from pyspark.sql.utils import StreamingQueryException

        frame = query.source().groupBy("k").count()
        query.run(frame)
        spark_s = read_state_schema(query.store)
        shutil.rmtree(query.files()[0].parent)
        write_state_schema(query.store, StateSchema(arrow_schema("renamed int"), spark_s.value))
        query.run(frame)
        # The reader of state takes the names from the file.
        assert sorted(query.state().select("key.renamed", "value.count").collect()) == [(0, 1), (1, 1)]
        # That Spark has really read it shows when it cannot go on with it.
        write_state_schema(query.store, StateSchema(arrow_schema("k long"), spark_s.value))
        with pytest.raises(StreamingQueryException, match="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
            query.run(frame)
        # The schema in version 1 is Spark's to read, too.
        query.store.child("_metadata").publish("schema", encode_state_schema(spark_s, version=1))
        query.run(frame)

    def test_spark_reads_what_it_could_not_have_written(self, query):
        """More bytes than characters: Spark's own writer fails on such a name."""
        name = "漢" * 70_000
        frame = query.source().groupBy("k").count()
        query.run(frame)
        read = read_state_schema(query.store)
        write_state_schema(query.store, StateSchema(pa.schema({name: pa.int32()}), read.value))
        query.run(frame)
        assert query.state().select("key.*").columns == [name]

    def test_a_restarted_query_is_judged_as_we_judge_it(self, query, tmp_path):
        """Real queries, changed and restarted."""
        from pyspark.sql import functions as sf
        from pyspark.sql.utils import StreamingQueryException

        def never_null(name):
            return sf.coalesce(sf.col(name), sf.lit(0))

        # (what it is grouped by, what is aggregated) before and after, and whether that may be.
        k, n = sf.col("k"), sf.count("v")
        changes = {
            "key renamed": ((k, n), (k.alias("other"), n), True),
            "value renamed": ((k, n), (k, n.alias("other")), True),
            "key no longer null": ((k, n), (never_null("k"), n), True),
            "value no longer null": ((k, sf.sum("v")), (k, n), True),
            "value may be null": ((k, n), (k, sf.sum("v")), False),
            "nested name and null": ((sf.struct(k.alias("a")), n), (sf.struct(never_null("k").alias("b")), n), True),
            "nested may be null": ((sf.struct(never_null("k").alias("a")), n), (sf.struct(k.alias("a")), n), False),
            "array may have nulls": ((sf.array(never_null("k")), n), (sf.array(k), n), False),
            "type": ((k, n), (k.cast("long"), n), False),
        }
        for number, (name, (before, after, allowed)) in enumerate(changes.items()):
            # The schema of the changed query is what it writes when it starts anew.
            one, other = Query(query._spark, tmp_path / f"{number}"), Query(query._spark, tmp_path / f"{number}new")
            one.run(one.source().groupBy(before[0].alias("g")).agg(before[1]))
            other.run(other.source().groupBy(after[0].alias("g")).agg(after[1]))
            stored, new = read_state_schema(one.store), read_state_schema(other.store)
            ours = theirs = True
            try:
                check_compatible(stored, new, name)
            except InvalidSchema:
                ours = False
            try:
                one.run(one.source().groupBy(after[0].alias("g")).agg(after[1]))
            except StreamingQueryException as refused:
                theirs = "SCHEMA_NOT_COMPATIBLE" not in str(refused)
            assert (ours, theirs) == (allowed, allowed), name
            assert read_state_schema(one.store).spelling == stored.spelling, "a compatible change rewrites nothing"

    def test_every_change_is_judged_as_spark_s_checker_does(self, spark):
        jvm_types = spark._jvm.org.apache.spark.sql.types
        from_json = jvm_types.DataType.fromJson
        checker = getattr(getattr(jvm_types, "DataType$"), "MODULE$")
        verdicts = []

        @settings(
            max_examples=300,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(st.data())
        def check(data):
            key = data.draw(schemas(depth=2, max_columns=3))
            changed = pa.schema([changed_field(data.draw, field) for field in key])
            stored, new = StateSchema(key, AGGREGATION.value), StateSchema(changed, AGGREGATION.value)
            expected = checker.equalsIgnoreNameAndCompatibleNullability(
                from_json(new.key_json), from_json(stored.key_json)
            )
            try:
                check_compatible(stored, new, "x")
            except InvalidSchema:
                assert not expected
            else:
                assert expected
            verdicts.append(expected)

        check()
        assert verdicts.count(True) > 50
        assert verdicts.count(False) > 50


def changed_field(draw, field):
    """Mostly the same: another name, null or not null, seldom another type or one column more."""
    may_be_null = draw(st.sampled_from([field.nullable] * 8 + [not field.nullable]))
    name = draw(st.sampled_from([field.name, "other"]))
    if draw(st.integers(0, 14)) == 0:
        return pa.field(name, draw(types(1)), nullable=may_be_null)
    return pa.field(name, changed_type(draw, field.type), nullable=may_be_null)


def changed_type(draw, data_type):
    if pa.types.is_struct(data_type):
        return pa.struct([changed_field(draw, field) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(changed_field(draw, data_type.value_field).with_name("element"))
    if pa.types.is_map(data_type):
        key = pa.field("key", changed_type(draw, data_type.key_type), nullable=False)
        return pa.map_(key, changed_field(draw, data_type.item_field).with_name("value"))
    return data_type
