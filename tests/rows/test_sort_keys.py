"""The order of sort keys, against a comparator written from Spark's rules alone."""

import functools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_strategies import batches, schemas, values

from holdfast.errors import CorruptState, InvalidSchema
from holdfast.rows import KeyIndex, RowCodec, SortKeyCodec, prefix_matches

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ordered = {"maps": False, "lists": False}


def compare(left, right):
    """Ascending, nulls first; NaN equals NaN and is above all other numbers; text by its UTF-8 bytes."""
    if left is None or right is None:
        return (left is not None) - (right is not None)
    if isinstance(left, dict):
        left, right = list(left.values()), list(right.values())
    if isinstance(left, (list, tuple)):
        for one, other in zip(left, right, strict=True):
            if compare(one, other):
                return compare(one, other)
        return 0
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    if isinstance(left, float) and (math.isnan(left) or math.isnan(right)):
        return math.isnan(left) - math.isnan(right)
    return (left > right) - (left < right)


@relaxed
@given(batches(python=True, depth=2, max_columns=3, max_rows=12, **ordered))
def test_bytes_order_as_the_values_do(batch):
    rows = [tuple(row.values()) for row in batch.to_pylist()]
    codec = SortKeyCodec(batch.schema)
    keys = codec.encode(batch).to_pylist()
    assert keys == [codec.encode_one(row) for row in rows]
    for left, left_key in zip(rows, keys, strict=True):
        for right, right_key in zip(rows, keys, strict=True):
            assert (left_key > right_key) - (left_key < right_key) == compare(left, right), (left, right)


@relaxed
@given(st.data(), st.sampled_from([pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")]))
def test_far_dates_and_times_sort_too(data, data_type):
    batch = data.draw(batches(pa.schema([("c0", data_type)]), max_rows=12))
    column = batch.column(0)
    numbers = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64()).to_pylist()
    keys = SortKeyCodec(batch.schema).encode(batch).to_pylist()
    by_key = [number for _, number in sorted(zip(keys, numbers, strict=True), key=lambda pair: pair[0])]
    assert by_key == sorted(numbers, key=functools.cmp_to_key(compare))


@relaxed
@given(st.data())
def test_leading_columns_are_a_prefix_and_nothing_else_is(data):
    schema = data.draw(schemas(depth=1, max_columns=3, **ordered))
    row, other = (tuple(data.draw(values(pa.struct(list(schema)), python=True)).values()) for _ in range(2))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(pair, field.type) for field, pair in zip(schema, zip(row, other, strict=True), strict=True)],
        schema=schema,
    )
    row, other = (tuple(values.values()) for values in batch.to_pylist())
    codec = SortKeyCodec(schema)
    for count in range(1, len(schema) + 1):
        prefix = codec.encode_prefix(row[:count])
        assert codec.encode_one(row).startswith(prefix)
        assert codec.encode_one(other).startswith(prefix) == (compare(row[:count], other[:count]) == 0)


def test_golden_sort_keys():
    codec = SortKeyCodec("b boolean, i int, d double, m decimal(5,2), n decimal(20,0), s string, t struct<a:tinyint>")
    row = (True, -1, -0.0, -1, 1, "a\0", (None,))
    assert codec.encode_one(row).hex(" ") == (
        "01 01 "
        "01 7f ff ff ff "
        "01 80 00 00 00 00 00 00 00 "
        "01 7f ff ff ff ff ff ff 9c "
        "01 80 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 "
        "01 61 00 ff 00 00 "
        "01 00"
    )
    assert codec.encode_one((None,) * 7) == bytes(7)


def test_all_nans_are_one_and_both_zeros_too():
    quiet, signalling, negative = 0x7FF8000000000001, 0x7FF0000000000001, 0xFFF8000000000000
    doubles = np.array([quiet, signalling, negative, 0, 1 << 63], "<u8").view("<f8")
    floats = np.array([0x7FC00001, 0x7F800001, 0xFFC00000, 0, 1 << 31], "<u4").view("<f4")
    for numbers in (doubles, floats):
        batch = pa.record_batch({"x": numbers})
        codec = SortKeyCodec(batch.schema)
        keys = codec.encode(batch).to_pylist()
        assert keys == [codec.encode_one([number]) for number in batch.column(0).to_pylist()]
        assert keys[0] == keys[1] == keys[2] > codec.encode_one([math.inf])
        assert keys[3] == keys[4]


def test_chosen_columns_in_the_chosen_order():
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"], "c": [None, 3.5]})
    codec = SortKeyCodec(batch.schema, ["c", 0])
    assert codec.columns == (2, 0)
    rows = [(1, "x", None), (2, "y", 3.5)]
    assert codec.encode(batch).to_pylist() == [codec.encode_one(row) for row in rows]
    assert codec.encode_one(rows[1]) == codec.encode_prefix([3.5, 2])
    assert codec.encode_one(rows[1]).startswith(codec.encode_prefix([3.5]))


@pytest.mark.parametrize(
    ("schema", "columns", "words"),
    [
        ("a array<int>", None, "'a' is array<int>; a sort key can have any type except arrays and maps"),
        ("x struct<m:map<int,int>>", None, "'x.m' is map<int,int>"),
        ("a int", ["b"], "no column 'b'"),
        ("a int, a int", ["a"], "more than one column 'a'"),
        ("a int", [1], "no column at position 1"),
        ("a int", [-1], "no column at position -1"),
    ],
)
def test_columns_that_have_no_order(schema, columns, words):
    with pytest.raises(InvalidSchema) as caught:
        SortKeyCodec(schema, columns)
    assert words in str(caught.value)


def test_values_that_do_not_fit():
    codec = SortKeyCodec("a int, x struct<b:string>")
    for row, words in (((1,), "a row has 2 values"), (("s", None), "'a' is int"), ((1, (5,)), "'x.b' is string")):
        with pytest.raises(InvalidSchema, match=words):
            codec.encode_one(row)
    with pytest.raises(InvalidSchema, match="2 columns, not 3"):
        codec.encode_prefix([1, None, 2])


@relaxed
@given(batches(depth=1, max_columns=3, max_rows=6, **ordered), st.data())
def test_key_index_sorts_one_column_of_encoded_keys(batch, data):
    ordinal = data.draw(st.integers(0, batch.num_columns - 1))
    keys = RowCodec(batch.schema).encode(batch).to_pylist()
    expected = SortKeyCodec(batch.schema, [ordinal]).encode(batch).to_pylist()
    index = KeyIndex(batch.schema, ordinal)
    assert index.sort_keys(keys) == expected
    assert [index.sort_key(key) for key in keys] == expected


def test_key_index_bounds():
    codec = RowCodec("user string, at long")
    index = KeyIndex(codec.schema, 1)
    keys = [codec.encode_one(("u", n)) for n in (-5, 0, 7)]
    low, high = index.bound(-1), index.bound(7)
    assert [low <= key < high for key in index.sort_keys(keys)] == [False, True, False]
    with pytest.raises(InvalidSchema):
        KeyIndex("a array<int>", 0)
    with pytest.raises(InvalidSchema):
        KeyIndex("a int", 1)


@relaxed
@given(batches(depth=2, max_columns=3, max_rows=6), st.data())
def test_prefix_matches_compares_leading_columns(batch, data):
    columns = data.draw(st.integers(1, batch.num_columns))
    keys = RowCodec(batch.schema).encode(batch).to_pylist()
    leading = batch.select(range(columns))
    prefixes = RowCodec(leading.schema).encode(leading).to_pylist()
    for prefix in prefixes:
        found = prefix_matches(batch.schema, columns, prefix, keys)
        assert found.dtype == bool
        assert found.tolist() == [other == prefix for other in prefixes]


def test_prefix_matches_refuses_what_cannot_be():
    key = RowCodec("a int").encode_one([1])
    for columns in (0, 2):
        with pytest.raises(InvalidSchema, match=f"prefix of {columns} columns"):
            prefix_matches("a int", columns, b"", [key])
    assert prefix_matches("a int", 1, key, []).tolist() == []
    with pytest.raises(CorruptState):
        prefix_matches("a int", 1, key, [key[:8]])
