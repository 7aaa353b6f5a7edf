"""Snapshots too large to be decoded in one go: the same bytes and the same records, a part at a time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import log as log_module
from holdfast.checkpoint.framing import compress, compress_parts, decompress
from holdfast.checkpoint.log import CheckpointLog
from holdfast.checkpoint.records import decode_record_parts, decode_records, encode_records
from holdfast.checkpoint.storage import Folder
from holdfast.errors import CorruptState

ROWS = st.binary(max_size=40)
PAIRS = st.lists(st.tuples(ROWS, st.none() | ROWS.map(lambda row: row[: len(row) // 8 * 8])), max_size=200)


@given(pairs=PAIRS, cuts=st.lists(st.integers(0, 6000), max_size=8))
def test_records_cut_anywhere(pairs, cuts):
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    data = bytes(encode_records(keys, values))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = [data[start:end] for start, end in pairwise(places)]
    # Nothing may follow the part that has the end mark.
    parts = [part for part in parts if part]
    decoded = list(decode_record_parts(parts, "f"))
    assert [key for some, _ in decoded for key in some] == keys
    assert [value for _, some in decoded for value in some] == values


def test_many_records_alike_cut_anywhere():
    keys = [number.to_bytes(24, "big") for number in range(2000)]
    data = bytes(encode_records(keys, keys))
    for size in (1000, 4099, 32768):
        parts = [data[start : start + size] for start in range(0, len(data), size)]
        assert [key for some, _ in decode_record_parts(parts, "f") for key in some] == keys


@pytest.mark.parametrize("damage", [lambda data: data[:-4], lambda data: data[:-20], lambda data: data + bytes(8)])
def test_records_that_end_wrongly(damage):
    data = damage(bytes(encode_records([bytes(8)] * 100, [bytes(8)] * 100)))
    with pytest.raises(CorruptState):
        decode_records(data, "f")
    for size in (33, 1000, 10_000):
        parts = [data[start : start + size] for start in range(0, len(data), size)]
        with pytest.raises(CorruptState):
            list(decode_record_parts(parts, "f"))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("sizes", [(), (0,), (1, 2), (32768, 32768), (100_000, 5, 0, 70_000)])
def test_compressed_in_parts(codec, sizes):
    parts = [bytes(range(256)) * (size // 256) + bytes(size % 256) for size in sizes]
    packed = compress_parts(iter(parts), codec)
    assert packed == compress(b"".join(parts), codec)
    assert decompress(packed, "f") == b"".join(parts)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_large_snapshot_comes_in_pieces(tmp_path, monkeypatch, codec):
    monkeypatch.setattr(log_module, "_WHOLE", 100)
    monkeypatch.setattr(log_module, "_PART", 40_000)
    monkeypatch.setattr(log_module, "_PAIRS", 333)
    pairs = {b"%024d" % number: number.to_bytes(16, "big") for number in range(5000)}
    log = CheckpointLog(Folder.open(str(tmp_path)), codec)
    log.write_snapshot(3, pairs.items())
    pieces = list(log.load(3))
    assert {key: value for piece in pieces for key, value in zip(piece.keys, piece.values, strict=True)} == pairs
    assert all(piece.is_snapshot and piece.version == 3 for piece in pieces)
    if codec == "lz4":
        assert len(pieces) > 1
    data = bytearray((tmp_path / "3.snapshot").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "3.snapshot").write_bytes(data)
    with pytest.raises(CorruptState):
        log.load(3)
