"""Round trips, agreement of the bulk and the single form, and what is refused."""

import datetime as dt
import math
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_strategies import batches

from holdfast.errors import CorruptState, HoldfastError, InvalidRequest, InvalidSchema
from holdfast.rows import RowCodec, arrow_schema
from holdfast.rows import codec as codec_module
from holdfast.rows import conform as conform_module

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def exact(value):
    """A value that compares by bits where it is a float, and by instant where it has a time zone."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return {name: exact(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(inner) for inner in value]
    return value


@relaxed
@given(batches())
def test_decode_undoes_encode(batch):
    codec = RowCodec(batch.schema)
    rows = codec.encode(batch)
    assert all(len(row) % 8 == 0 for row in rows.to_pylist())
    decoded = codec.decode(rows)
    decoded.validate(full=True)
    assert decoded.schema == batch.schema
    for ours, theirs in zip(decoded.columns, batch.columns, strict=True):
        assert repr(as_numbers(ours)) == repr(as_numbers(theirs))


def as_numbers(array):
    """Python values of any array; dates and times as integers, because Python's end where Spark's go on."""
    kind = array.type
    if pa.types.is_struct(kind):
        columns = [as_numbers(array.field(i)) for i in range(kind.num_fields)]
        return [list(row) if ok else None for *row, ok in zip(*columns, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return [
            None if not item.is_valid else as_numbers(item.values)  # a map's values are structs of key and value
            for item in array
        ]
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return array.cast(pa.int32() if pa.types.is_date(kind) else pa.int64()).to_pylist()
    return array.to_pylist()


@relaxed
@given(batches(python=True))
def test_one_row_at_a_time_gives_the_same_bytes_and_values(batch):
    codec = RowCodec(batch.schema)
    rows = codec.encode(batch).to_pylist()
    values = [tuple(row.values()) for row in batch.to_pylist()]
    assert [codec.encode_one(row) for row in values] == rows
    assert exact([codec.decode_one(row) for row in rows]) == exact(values)


@relaxed
@given(batches(max_rows=20, depth=2), st.data())
def test_pieces_give_the_same_rows_as_the_whole(batch, data):
    codec = RowCodec(batch.schema)
    rows = codec.encode(batch).to_pylist()
    cut = data.draw(st.integers(0, batch.num_rows))
    table = pa.Table.from_batches([batch.slice(0, cut), batch.slice(cut)], schema=batch.schema)
    assert codec.encode(table).to_pylist() == rows
    assert codec.encode(pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))).to_pylist() == rows
    encoded = pa.array([b"x", *rows], pa.binary()).slice(1)
    whole = codec.encode(codec.decode(encoded)).to_pylist()
    assert whole == rows
    assert codec.encode(codec.decode(encoded.slice(cut))).to_pylist() == rows[cut:]
    assert codec.encode(codec.decode(pa.chunked_array([encoded.slice(0, cut), encoded.slice(cut)]))).to_pylist() == rows


@relaxed
@given(batch=batches(max_rows=12, depth=2))
def test_blocks_make_no_difference(batch):
    codec = RowCodec(batch.schema)
    rows = codec.encode(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conform_module, "BLOCK", 3)
        patch.setattr(codec_module, "BLOCK", 3)
        assert codec.encode(batch) == rows
        assert codec.encode(codec.decode(rows)) == rows


def test_no_rows_and_no_columns():
    codec = RowCodec("s string, a array<int>, m map<string,int>, x struct<y:int>, d decimal(30,2), b boolean")
    none = pa.RecordBatch.from_pylist([], schema=codec.schema)
    for empty in (none, pa.Table.from_batches([none]), pa.Table.from_batches([], schema=codec.schema)):
        assert codec.encode(empty).type == pa.large_binary()
        assert len(codec.encode(empty)) == 0
    assert codec.decode([]).schema == codec.schema
    nothing = RowCodec("")
    assert nothing.encode_one([]) == b""
    assert nothing.decode_one(b"") == ()
    three = nothing.decode([b"", b"", b""])
    assert three.num_rows == 3
    assert nothing.encode(three).to_pylist() == [b"", b"", b""]


@pytest.mark.parametrize("count", [7, 8, 9, 63, 64, 65, 200])
@pytest.mark.parametrize("element", ["boolean", "smallint", "string", "decimal(30,0)"])
def test_long_arrays_with_nulls(count, element):
    codec = RowCodec(f"x array<{element}>")
    value = {"boolean": True, "smallint": 5, "string": "s"}.get(element, Decimal(7))
    rows = [[value if (index + shift) % 3 else None for index in range(count)] for shift in range(3)]
    batch = pa.record_batch([pa.array(rows, codec.schema.field(0).type)], schema=codec.schema)
    encoded = codec.encode(batch).to_pylist()
    assert encoded == [codec.encode_one([row]) for row in rows]
    assert codec.decode(encoded) == batch


def test_more_than_64_columns():
    codec = RowCodec(", ".join(f"c{n} {'string' if n % 2 else 'int'}" for n in range(130)))
    rows = [tuple(None if (n + shift) % 3 == 0 else str(n) if n % 2 else n for n in range(130)) for shift in range(4)]
    batch = pa.RecordBatch.from_pylist([dict(zip(codec.schema.names, row, strict=True)) for row in rows], codec.schema)
    encoded = codec.encode(batch).to_pylist()
    assert encoded == [codec.encode_one(row) for row in rows]
    assert codec.decode(encoded) == batch


def test_some_columns_only():
    codec = RowCodec("a int, s string, b array<int>")
    rows = [codec.encode_one((n, str(n), [n])) for n in range(3)]
    assert codec.decode(rows, columns=[2, 0]).to_pydict() == {"b": [[0], [1], [2]], "a": [0, 1, 2]}


def test_garbage_under_nulls_is_not_read():
    valid = pa.py_buffer(b"\x05")  # of three, the middle one is null
    text = pa.array(["a", "never", "c"])
    structs = pa.StructArray.from_buffers(pa.struct([("s", pa.string())]), 3, [valid], children=[text])
    lists = pa.ListArray.from_buffers(
        pa.list_(pa.string()), 3, [valid, pa.py_buffer(struct.pack("<4i", 0, 1, 2, 3))], children=[text]
    )
    pairs = pa.StructArray.from_arrays(
        [text, text], fields=[pa.field("key", pa.string(), False), pa.field("value", pa.string())]
    )
    maps = pa.MapArray.from_buffers(
        pa.map_(pa.string(), pa.string()), 3, [valid, pa.py_buffer(struct.pack("<4i", 0, 1, 2, 3))], children=[pairs]
    )
    numbers = pa.Array.from_buffers(pa.int64(), 3, [valid, pa.py_buffer(struct.pack("<3q", 1, 99, 3))])
    batch = pa.record_batch({"x": structs, "l": lists, "m": maps, "n": numbers})
    codec = RowCodec(batch.schema)
    expected = [codec.encode_one(tuple(row.values())) for row in batch.to_pylist()]
    assert codec.encode(batch).to_pylist() == expected
    assert codec.encode(batch.slice(1)).to_pylist() == expected[1:]


def test_variants_of_a_type_are_accepted_if_nothing_is_lost():
    codec = RowCodec("s string, b binary, l array<string>, t timestamp, d string")
    instant = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    batch = pa.record_batch(
        {
            "s": pa.array(["a", None], pa.large_string()),
            "b": pa.array([b"x", b""], pa.large_binary()),
            "l": pa.array([["p"], None], pa.large_list(pa.large_string())),
            "t": pa.array([instant, None], pa.timestamp("ns", tz="Europe/Vienna")),
            "d": pa.array(["u", "u"]).dictionary_encode(),
        }
    )
    expected = [codec.encode_one(("a", b"x", ["p"], instant, "u")), codec.encode_one((None, b"", None, None, "u"))]
    assert codec.encode(batch).to_pylist() == expected
    finer = batch.set_column(3, "t", pa.array([1, None], pa.timestamp("ns", tz="UTC")))
    with pytest.raises(InvalidSchema, match="'t' is timestamp; data of type"):
        codec.encode(finer)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"k": [1], "v": ["a"]}, "'k' is string, but the data is int64"),
        ({"v": [1], "k": ["a"]}, r"columns are \['v', 'k'\], but the schema is \(k string, v bigint not null\)"),
        ({"k": ["a"]}, "columns are"),
        ({"k": ["a", "b"], "v": [1, None]}, "'v' is bigint not null, and has a null in row 1"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(columns, words):
    with pytest.raises(InvalidSchema, match=words):
        RowCodec("k string, v long not null").encode(pa.table(columns))


def test_null_row_numbers_count_over_chunks_and_blocks(monkeypatch):
    monkeypatch.setattr(conform_module, "BLOCK", 2)
    chunks = pa.chunked_array([[1, 2, 3], [4, 5, 6, None]])
    with pytest.raises(InvalidSchema, match="null in row 6"):
        RowCodec("v long not null").encode(pa.table({"v": chunks}))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (pa.schema([pa.field("x", pa.list_(pa.field("element", pa.int32(), nullable=False)))]), [1, None]),
        (arrow_schema("x struct<a: int not null>"), {"a": None}),
        (
            pa.schema([pa.field("x", pa.map_(pa.int32(), pa.field("value", pa.int32(), nullable=False)))]),
            [(1, None)],
        ),
    ],
)
def test_nested_nulls_where_none_may_be(schema, value):
    codec = RowCodec(schema)
    lenient = RowCodec(pa.schema([pa.field("x", nullable(schema.field(0).type))]))
    row = lenient.encode_one([value])
    batch = lenient.decode([row])
    for attempt in (lambda: codec.encode(batch), lambda: codec.encode_one([value])):
        with pytest.raises(InvalidSchema, match=r"'x\.\w+' is int not null"):
            attempt()
    for read in (lambda: codec.decode([row]), lambda: codec.decode_one(row)):
        with pytest.raises(CorruptState, match=r"'x\.\w+'.*null"):
            read()


def nullable(data_type):
    if pa.types.is_list(data_type):
        return pa.list_(pa.field("element", data_type.value_type))
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_type, data_type.item_type)
    return pa.struct([field.with_nullable(True) for field in data_type])


def test_a_null_where_none_may_be_is_refused_in_both_directions():
    strict, lenient = RowCodec("v long not null"), RowCodec("v long")
    row = lenient.encode_one([None])
    with pytest.raises(InvalidSchema, match="'v' is bigint not null"):
        strict.encode_one([None])
    with pytest.raises(CorruptState, match="row 1, column 'v'"):
        strict.decode([strict.encode_one([1]), row])
    with pytest.raises(CorruptState, match="column 'v'"):
        strict.decode_one(row)


UTC = dt.timezone.utc


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("boolean", 1, "int 1: a bool is needed"),
        ("tinyint", 128, "int 128"),
        ("int", "7", "str '7'"),
        ("bigint", 1.0, "float 1.0"),
        ("bigint", 2**63, "int 9223372036854775808"),
        ("float", 1e300, "float 1e"),
        ("double", Decimal(1), "Decimal Decimal"),
        ("decimal(3,1)", Decimal("1.25"), "more than 1 digits after the point"),
        ("decimal(3,1)", Decimal("100"), "more digits"),
        ("decimal(3,1)", Decimal("NaN"), "not a finite number"),
        ("decimal(3,1)", Decimal("1e999999999"), "more digits"),
        ("decimal(30,1)", Decimal("1e-999999999"), "after the point"),
        ("decimal(30,1)", 1.5, "a Decimal or an int is needed"),
        ("string", b"x", "bytes b'x'"),
        ("string", "\ud800", "surrogates not allowed"),
        ("binary", "x", "bytes are needed"),
        ("date", dt.datetime(2024, 1, 1), "a datetime.date is needed"),
        ("timestamp", dt.datetime(2024, 1, 1), "use an aware datetime, or declare the column timestamp_ntz"),
        ("timestamp", 5, "a datetime.datetime is needed"),
        ("timestamp_ntz", dt.datetime(2024, 1, 1, tzinfo=UTC), "use a naive datetime"),
        ("array<int>", "ab", "a list is needed"),
        ("array<int>", [1, "b"], "'x.element' is int, and the value is str 'b'"),
        ("array<int>", [1, 2**40], "'x.element' is int, and the value is int"),
        ("map<string,int>", {None: 1}, "'x.key' is string not null"),
        ("map<string,int>", 5, "int 5"),
        ("struct<a:int>", {"b": 1}, "there is no field"),
        ("struct<a:int>", (1, 2), "'x' has 1 values, not 2"),
        ("struct<a:int>", {"a": "s"}, "'x.a' is int, and the value is str 's'"),
    ],
)
def test_a_value_that_does_not_fit_names_column_type_and_value(column, value, words):
    with pytest.raises(InvalidSchema, match="column 'x") as caught:
        RowCodec(f"k string, x {column}").encode_one(("k", value))
    assert words in str(caught.value)


@pytest.mark.parametrize("values", [(1,), (1, 2, 3), "ab", 5, {"a": 1, "b": 2}])
def test_a_row_is_a_sequence_of_the_right_length(values):
    for schema in ("a int, b int", "a string, b int"):
        with pytest.raises(InvalidSchema):
            RowCodec(schema).encode_one(values)


def test_accepted_spellings_of_python_values():
    codec = RowCodec("m map<string,int>, s struct<a:int,b:int>, d decimal(25,2), e decimal(5,2), n int, f double")
    plain = codec.encode_one(([("k", 1)], {"a": 1, "b": None}, Decimal("7.00"), Decimal("-7.5"), 3, 2.0))
    other = codec.encode_one(({"k": 1}, (1, None), 7, Decimal("-75e-1"), np.int32(3), np.float64(2)))
    assert plain == other
    assert codec.decode_one(plain) == (
        [("k", 1)],
        {"a": 1, "b": None},
        Decimal("7.00"),
        Decimal("-7.50"),
        3,
        2.0,
    )


def test_structs_with_two_fields_of_one_name_are_tuples():
    codec = RowCodec("x struct<sum:long,sum:long>")
    row = codec.encode_one([(1, 2)])
    assert codec.decode_one(row) == ((1, 2),)
    with pytest.raises(InvalidSchema, match="a tuple is needed"):
        codec.encode_one([{"sum": 1}])


@pytest.mark.parametrize("column", ["date", "timestamp", "timestamp_ntz"])
def test_times_that_python_does_not_have_need_arrow(column):
    codec = RowCodec(f"x {column}")
    number = 2**31 - 1 if column == "date" else 2**63 - 1
    row = struct.pack("<qq", 0, number)
    with pytest.raises(InvalidRequest, match="'x': Python has no"):
        codec.decode_one(row)
    assert codec.encode(codec.decode([row])).to_pylist() == [row]


def test_values_longer_than_a_multiple_of_8_are_floored():
    codec = RowCodec("n long, s string")
    row = codec.encode_one((1, "abc"))
    for more in range(8):
        longer = row + b"\xff" * more
        assert codec.decode_one(longer) == (1, "abc")
        assert codec.decode([longer, row, longer]).to_pylist() == [{"n": 1, "s": "abc"}] * 3


@pytest.mark.parametrize("rows", [[b"", None], [1], pa.array(["text"]), pa.array([1])])
def test_rows_are_bytes(rows):
    with pytest.raises(HoldfastError):
        RowCodec("").decode(rows)


def test_a_null_struct_is_not_a_row():
    with pytest.raises(InvalidSchema, match="a row is null"):
        RowCodec("a int").encode(pa.array([{"a": 1}, None]))


def test_offsets_beyond_2_gib_are_told_not_wrapped():
    from holdfast.rows.decode import _int32

    assert np.frombuffer(_int32(np.array([0, 2**31 - 1]), "x"), np.int32).tolist() == [0, 2**31 - 1]
    with pytest.raises(InvalidRequest, match="'x' of these rows exceeds 2 GiB; decode fewer rows"):
        _int32(np.array([0, 2**31]), "x")


def test_rows_beyond_2_gib_keep_their_offsets():
    """The rows of this column take 2.5 GiB; only their positions are computed, nothing of that size is written."""
    from holdfast.rows.encode import Rows, Variable
    from holdfast.rows.words import offsets_of

    class Huge(Variable):
        def __init__(self):
            self.sizes = np.full(5, 2**29, np.int64)
            self.words = self.sizes >> 3

        def write(self, out, at):
            raise AssertionError

    offsets = offsets_of(Rows([Huge()], 5).sizes)
    assert offsets.tolist() == [n * (16 + 2**29) for n in range(6)]
    assert offsets.dtype == np.int64


def test_an_arrow_decimal_with_more_digits_than_its_type_is_refused():
    # Arrow does not check what buffers say; Spark would silently write a null.
    for precision in (3, 18, 19, 38):
        for sign in (1, -1):
            for digits, ok in ((10**precision - 1, True), (10**precision, False)):
                data = (sign * digits).to_bytes(16, "little", signed=True)
                array = pa.Array.from_buffers(pa.decimal128(precision, 1), 1, [None, pa.py_buffer(data)])
                batch = pa.record_batch({"x": array})
                if ok:
                    RowCodec(batch.schema).encode(batch)
                else:
                    with pytest.raises(InvalidSchema, match="'x' is decimal"):
                        RowCodec(batch.schema).encode(batch)


def test_nan_bits_survive_single_rows():
    codec = RowCodec("x double")
    row = struct.pack("<qQ", 0, 0x7FF8DEADBEEF0001)
    (value,) = codec.decode_one(row)
    assert math.isnan(value)
    assert codec.encode_one([value]) == row


class Celsius(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int32(), "test.celsius")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def test_what_is_no_row_or_schema_is_refused():
    with pytest.raises(InvalidSchema, match="column 't'.*celsius"):
        RowCodec(pa.schema([("t", Celsius())]))
    with pytest.raises(InvalidRequest, match=r"columns \[3\] of a row that has 1"):
        RowCodec("a int").decode([], columns=[3])
    for row in (None, "text", 5):
        with pytest.raises(InvalidRequest, match="an encoded row is bytes"):
            RowCodec("a int").decode_one(row)


def test_a_string_that_is_none_is_refused_before_it_becomes_state():
    offsets = pa.array([0, 1], pa.int32()).buffers()[1]
    bad = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    with pytest.raises(InvalidSchema, match="column 'a' is string, and a value is not: .*UTF8"):
        RowCodec("a string").encode(pa.RecordBatch.from_arrays([bad], ["a"]))
