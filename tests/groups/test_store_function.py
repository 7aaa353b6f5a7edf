"""A function on a whole partition and its stores."""

import pyarrow as pa
import pytest
from group_operator import Operator, batch

from holdfast.errors import Fenced, FunctionFailed, InvalidRequest, InvalidSchema
from holdfast.groups import StoreFunctionPlan
from holdfast.rows import RowCodec

ROWS = "user string, amount long"
KEY, VALUE = RowCodec("user string"), RowCodec("total long")
DEFAULT = {"default": ("user string", "total long")}


def totals(store, batches):
    for each in batches:
        for row in each.to_pylist():
            key = KEY.encode_one((row["user"],))
            old = store.get(key)
            total = row["amount"] + (0 if old is None else VALUE.decode_one(old)[0])
            store.put(key, VALUE.encode_one((total,)))
            yield pa.table({"user": [row["user"]], "total": [total]})


def operator(folder, fn, stores=DEFAULT, output="user string, total long", **options):
    return Operator(StoreFunctionPlan(ROWS, output, stores, fn), folder, **options)


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_the_store_is_the_functions(tmp_path, limit):
    running = operator(tmp_path, totals, memory_limit=limit)
    running.run(batch(ROWS, ("a", 1)), batch(ROWS, ("b", 2)))
    assert running.run(batch(ROWS, ("a", 5), ("a", 1))) == [{"user": "a", "total": 6}, {"user": "a", "total": 7}]
    assert running.num_keys() == 2


def test_it_is_called_for_empty_partitions_too(tmp_path):
    called = []
    operator(tmp_path, lambda store, batches: called.append(list(batches))).run()
    assert called == [[]]


def test_several_stores_by_name(tmp_path):
    def two(stores, batches):
        for each in batches:
            stores["seen"].put(KEY.encode_one(("x",)), VALUE.encode_one((each.num_rows,)))
            assert stores["other"].get(KEY.encode_one(("x",))) is None

    stores = {"seen": DEFAULT["default"], "other": DEFAULT["default"]}
    both = operator(tmp_path, two, stores)
    both.run(batch(ROWS, ("a", 1)))
    assert (both.num_keys("seen"), both.num_keys("other")) == (1, 0)


def test_errors(tmp_path):
    def broken(store, batches):
        raise KeyError("x")

    def fenced(store, batches):
        raise Fenced("another attempt")

    with pytest.raises(FunctionFailed, match="broken failed on this partition: KeyError"):
        operator(tmp_path, broken).run()
    with pytest.raises(Fenced):
        operator(tmp_path, fenced).run()
    with pytest.raises(InvalidSchema, match="the output of .*'total' is bigint, but the data is string"):
        operator(tmp_path, lambda s, b: [pa.table({"user": ["a"], "total": ["1"]})]).run()
    with pytest.raises(InvalidRequest, match="at least one store"):
        StoreFunctionPlan(ROWS, ROWS, {}, broken)
