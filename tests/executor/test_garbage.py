"""What is no session is refused, and the host lives on."""

import pyarrow as pa
import pytest
from pyarrow import flight

from holdfast.executor.protocol import ROWS, Answer
from holdfast.rpc.records import decode


@pytest.mark.parametrize("command", [b"", b"garbage", b"[]", b'{"version": 1}', b"\xff\xfe" * 1000])
def test_an_opening_that_is_none(executor, query, command):
    client = executor.client()
    query.commit(client, 0, {"x": 0})
    writer, reader = client._connection(0)._client.do_exchange(flight.FlightDescriptor.for_command(command))
    writer.begin(ROWS)
    answer = decode(Answer, reader.read_chunk().app_metadata.to_pybytes())
    assert answer.error.type == "InvalidRequest"
    writer.close()
    assert query.commit(client, 1, {"x": 1}) == 2


@pytest.mark.parametrize("metadata", [b"garbage", b'{"do": "explode"}', b"{}"])
def test_a_request_that_is_none(executor, query, metadata):
    client = executor.client()
    query.commit(client, 0, {"x": 0})
    store = query.open(client, 1)
    row = pa.RecordBatch.from_arrays([pa.array([b"k"], pa.binary()), pa.array([b"v"], pa.binary())], schema=ROWS)
    store._exchange._writer.write_with_metadata(row, metadata)
    answer = decode(Answer, store._exchange._reader.read_chunk().app_metadata.to_pybytes())
    assert answer.error.type == "InvalidRequest"
    store._exchange.close()
    assert query.commit(client, 1, {"x": 1}) == 2
