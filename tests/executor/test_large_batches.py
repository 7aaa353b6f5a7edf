"""Batches that are larger than one message."""

import numpy as np
import pyarrow as pa
from cluster import row

from holdfast.executor.protocol import BATCH_BYTES


def binary(numbers):
    """An array of 8-byte rows."""
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * 8
    return pa.Array.from_buffers(
        pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(numbers.astype(np.int64))]
    )


def test_reads_and_writes_of_many_keys_stay_in_step(executor, query):
    """Keys that fit one message, but not together with the empty column beside them, are two requests."""
    keys = binary(np.arange(BATCH_BYTES // 14))
    assert keys.nbytes < BATCH_BYTES < keys.nbytes + pa.nulls(len(keys), pa.binary()).nbytes
    with query.open(executor.client(), 0) as store:
        store.put(row("x"), row("y"))
        assert store.get_array(keys).null_count == len(keys)
        assert store.get(row("x")) == row("y")
        store.put_array(keys, keys)
        assert store.get_array(keys) == keys
        store.remove_array(keys[1:])
        assert store.get_many([b"\0" * 8, row("x"), b"\1" + b"\0" * 7]) == [b"\0" * 8, row("y"), None]
        assert store.commit() == 1
        assert store.metrics.num_keys == 2


def test_values_that_are_larger_than_a_message(executor, query):
    values = [bytes([n]) * (BATCH_BYTES * n // 2 + 8) for n in range(5)]
    keys = [row(n) for n in range(5)]
    client = executor.client()
    with query.open(client, 0) as store:
        store.put_many(keys, values)
        assert store.get_many([*keys, row("none")]) == [*values, None]
        assert dict(store.iterator()) == dict(zip(keys, values, strict=True))
        assert store.commit() == 1
    assert query.stored(1) == query.read(client, 1) == dict(zip(keys, values, strict=True))
