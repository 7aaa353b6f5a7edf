"""Damaged rows: CorruptState or some value, and the two forms of decoding agree on which; never anything else."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_strategies import batches

from holdfast.errors import CorruptState, InvalidRequest
from holdfast.rows import RowCodec
from holdfast.rows import codec as codec_module

CODEC = RowCodec(
    "s string, n int, t array<string>, m map<tinyint,binary>, x struct<a:int,d:decimal(25,2)>, e decimal(9,2), "
    "b array<boolean>"
)
ROW = CODEC.encode_one(("abc", 7, ["x", None, "yy"], {1: b"q", 2: None}, (1, 5), 1, [True, None]))
WHOLE = 10**6
"""No column of so small a row may decode to as much as this."""


def outcome(codec, row):
    """What both ways of decoding make of a row: a value, or the news that it is corrupt."""
    try:
        batch = codec.decode([row])
    except CorruptState:
        with pytest.raises(CorruptState, match="row 0, column"):
            codec.decode([row])
        with pytest.raises(CorruptState, match=r"column|a row takes"):
            codec.decode_one(row)
        return CorruptState
    assert batch.nbytes < WHOLE
    batch.validate(full=True)
    try:
        one = codec.decode_one(row)
    except InvalidRequest:  # a date that Python does not have
        return batch
    again = codec.decode([codec.encode_one(one)])
    assert codec.encode(again).to_pylist() == codec.encode(batch).to_pylist()
    return batch


def test_every_flipped_bit():
    seen = set()
    for position in range(len(ROW)):
        for bit in range(8):
            damaged = bytearray(ROW)
            damaged[position] ^= 1 << bit
            seen.add(outcome(CODEC, bytes(damaged)) is CorruptState)
    assert seen == {True, False}


def test_every_truncation():
    outcomes = [outcome(CODEC, ROW[:size]) for size in range(len(ROW))]
    # The last value ends with the row, so nothing shorter can be whole.
    assert outcomes == [CorruptState] * len(ROW)


def test_every_word_replaced():
    for position in range(0, len(ROW), 8):
        for word in (0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1, 0xFFFFFFF8 << 32 | 8, 8 << 32 | 0xFFFFFFF8):
            outcome(CODEC, ROW[:position] + struct.pack("<Q", word) + ROW[position + 8 :])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(batches(python=True, max_rows=3), st.data())
def test_damage_anywhere_in_any_schema(batch, data):
    codec = RowCodec(batch.schema)
    for row in codec.encode(batch).to_pylist():
        position = data.draw(st.integers(0, len(row) - 1))
        damage = data.draw(st.binary(min_size=1, max_size=9))
        outcome(codec, (row[:position] + damage + row[position + len(damage) :])[: len(row)])


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_bytes_that_never_were_a_row(row):
    outcome(CODEC, row)


def test_the_message_names_row_and_column():
    good = CODEC.encode_one((None,) * 7)
    rows = [good] * 5
    bad = bytearray(CODEC.encode_one((None, None, None, None, None, None, [True])))
    bad[8 * 7 : 8 * 8] = struct.pack("<Q", len(bad) << 32 | 8)
    rows[3] = bytes(bad)
    with pytest.raises(CorruptState, match="row 3, column 'b': a value that lies outside its row"):
        CODEC.decode(rows)


def test_row_numbers_count_over_blocks(monkeypatch):
    monkeypatch.setattr(codec_module, "BLOCK", 2)
    with pytest.raises(CorruptState, match="row 5,"):
        CODEC.decode([ROW] * 5 + [ROW[:-8]] + [ROW] * 2)


def test_nested_damage_names_the_row_it_is_in():
    codec = RowCodec("x array<struct<s:string>>")
    rows = [codec.encode_one([[("a",)] * n]) for n in (2, 0, 3)] + [codec.encode_one([None])]
    at = rows[2].rindex(struct.pack("<Q", 16 << 32 | 1))
    rows[2] = rows[2][:at] + struct.pack("<Q", 16 << 32 | 100) + rows[2][at + 8 :]
    with pytest.raises(CorruptState, match=r"row 2, column 'x.element.s': a value that lies outside"):
        codec.decode(rows)


def test_text_that_is_not_utf8():
    codec = RowCodec("k int, s string")
    good = codec.encode_one((1, "é"))
    bad = good.replace("é".encode(), b"\xc3\x28")
    with pytest.raises(CorruptState, match="row 1, column 's': not UTF-8"):
        codec.decode([good, bad])
    with pytest.raises(CorruptState, match="column 's': not UTF-8"):
        codec.decode_one(bad)


def test_neighbours_are_out_of_reach():
    """An offset that leaves its row is refused though the buffer goes on: the next row is someone else's data."""
    codec = RowCodec("s string")
    secret = codec.encode_one(["secret"])
    reaching = struct.pack("<qQ", 0, 32 << 32 | 6)
    with pytest.raises(CorruptState, match="row 0"):
        codec.decode([reaching, secret])


def test_elements_may_not_share_bytes():
    """Otherwise a row of n bytes could ask for n * n / 16 bytes of output."""
    codec = RowCodec("x array<string>")
    count, size = 1000, 100_000
    fixed = 8 + (count + 63) // 64 * 8 + count * 8
    array = (
        struct.pack("<q", count)
        + bytes((count + 63) // 64 * 8)
        + struct.pack("<Q", fixed << 32 | size) * count
        + bytes(size)
    )
    row = struct.pack("<qQ", 0, 16 << 32 | len(array)) + array
    with pytest.raises(CorruptState, match="overlap"):
        codec.decode([row])
    with pytest.raises(CorruptState, match="overlap"):
        codec.decode_one(row)


@pytest.mark.parametrize("count", [-1, 2**31, 2**40, 2**62, -(2**63)])
def test_absurd_counts_allocate_nothing(count):
    for element in ("boolean", "bigint", "string"):
        codec = RowCodec(f"x array<{element}>")
        row = struct.pack("<qQqq", 0, 16 << 32 | 16, count, 0)
        for read in (lambda c=codec, r=row: c.decode([r]), lambda c=codec, r=row: c.decode_one(r)):
            with pytest.raises(CorruptState, match="element count"):
                read()


def test_decimals_beyond_their_digits_are_damage():
    for precision in (5, 25):
        wide = RowCodec(pa.schema([("x", pa.decimal128(18 if precision == 5 else 38, 0))]))
        narrow = RowCodec(pa.schema([("x", pa.decimal128(precision, 0))]))
        for value, ok in ((10**precision - 1, True), (10**precision, False)):
            for row in (wide.encode_one([value]), wide.encode_one([-value])):
                assert (outcome(narrow, row) is not CorruptState) == ok


def test_large_random_damage_in_bulk():
    """Many damaged rows at once: the first bad one is the one that is named."""
    rng = np.random.default_rng(7)
    for _ in range(200):
        rows = [ROW] * 20
        which = int(rng.integers(20))
        damaged = bytearray(ROW)
        damaged[int(rng.integers(len(ROW)))] ^= 1 << int(rng.integers(8))
        rows[which] = bytes(damaged)
        if outcome(CODEC, rows[which]) is CorruptState:
            with pytest.raises(CorruptState, match=f"row {which},"):
                CODEC.decode(rows)
        else:
            assert CODEC.decode(rows).num_rows == len(rows)
