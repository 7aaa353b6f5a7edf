"""The compressed stream of state files: golden bytes, real Spark in both directions, and damage."""

import random
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoint.framing import BLOCK_SIZE, END, compress, decompress
from holdfast.checkpoint.records import decode_records, encode_records
from holdfast.errors import CorruptState, InvalidRequest, InvalidSetting

CODECS = ["lz4", "zstd"]
SPARK_CODECS = {"lz4": "LZ4CompressionCodec", "zstd": "ZStdCompressionCodec"}
CHECKPOINTS = Path(__file__).parents[3] / "shared" / "spark-checkpoints"
MEBIBYTE = 1 << 20

# 1.delta of Spark 3.3's test checkpoint of a deduplication: one key, "a".
SPARK_FILE = bytes.fromhex(
    "4c5a34426c6f636b2523000000340000009616ed07"
    "5300000018000100930100000010000000611000000f000014000702005000ffffffff"
    "4c5a34426c6f636b15000000000000000000000000"
)
SPARK_KEY = struct.pack("<qII8s", 0, 1, 16, b"a")
SPARK_VALUE = struct.pack("<qq", 1, 0)


def header(token=0x25, stored=0, size=0, checksum=0, magic=b"LZ4Block"):
    return struct.pack("<8sBIII", magic, token, stored, size, checksum)


def spark_like_zstd(data):
    """As a stream writes it: with neither the size of the content nor a checksum."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


KEYS = [b"k%06d." % n for n in range(12)]
VALUES = [None if n == 5 else (b"v%06d." % n) * (n % 3) for n in range(12)]
RECORDS = encode_records(KEYS, VALUES)
SMALL = {
    "lz4": compress(RECORDS),
    # A raw block before a compressed one.
    "lz4, two blocks": compress(RECORDS[:14]).removesuffix(END) + compress(RECORDS[14:]),
    "zstd": compress(RECORDS, "zstd"),
}


def test_an_empty_stream_is_the_end_block():
    assert compress(b"") == bytes.fromhex("4c5a34426c6f636b15000000000000000000000000")
    assert decompress(compress(b""), "f") == b""


def test_a_short_block_is_raw():
    assert compress(b"hello") == b"LZ4Block\x15\x05\0\0\0\x05\0\0\0" + bytes.fromhex("e3bf410a") + b"hello" + END


def test_a_file_of_spark():
    assert decode_records(decompress(SPARK_FILE, "f"), "f") == ([SPARK_KEY], [SPARK_VALUE])


def test_zstd_has_size_and_checksum():
    assert compress(b"hello", "zstd") == bytes.fromhex("28b52ffd240529000068656c6c6fa36d9f88")


def test_blocks_hold_32_kib():
    noise = random.Random(1).randbytes(2 * BLOCK_SIZE + 1)
    packed = compress(noise)
    starts = [n * (BLOCK_SIZE + 21) for n in range(3)]
    assert [packed[n : n + 9] for n in starts] == [b"LZ4Block\x15"] * 3
    assert len(packed) == len(noise) + 4 * 21
    assert compress(bytes(BLOCK_SIZE))[8] == 0x25


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 5 * BLOCK_SIZE, 3 * MEBIBYTE])
def test_round_trip_at_every_boundary(codec, size):
    noise = random.Random(size).randbytes(size // 2 + 1)
    data = (noise + bytes(size))[:size]
    for given_as in (data, bytearray(data), memoryview(data)):
        assert decompress(compress(given_as, codec), "f") == data
    assert decompress(memoryview(compress(data, codec)), "f") == data


@pytest.mark.parametrize("codec", CODECS)
@given(parts=st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 3000)), max_size=5))
@settings(deadline=None)
def test_round_trip(codec, parts):
    data = b"".join(part * times for part, times in parts)
    assert decompress(compress(data, codec), "f") == data
    assert decompress(spark_like_zstd(data), "f") == data


def test_codecs_that_are_not_written():
    with pytest.raises(InvalidSetting, match="'snappy'.*lz4 or zstd"):
        compress(b"", "snappy")


@pytest.mark.parametrize(("codec", "start"), [("snappy", b"\x82SNAPPY\x00\0\0\0\1"), ("lzf", b"ZV\x01\0\5\0\6")])
def test_codecs_that_are_not_read_are_named(codec, start):
    with pytest.raises(InvalidRequest, match=f"1.delta: compressed with {codec}; lz4 and zstd are supported"):
        decompress(start, "1.delta")


def state_files():
    return sorted(path for path in CHECKPOINTS.rglob("*") if path.suffix in (".delta", ".snapshot"))


@pytest.mark.skipif(not CHECKPOINTS.is_dir(), reason=f"no stored checkpoints of Spark in {CHECKPOINTS}")
def test_stored_checkpoints_of_spark():
    files = state_files()
    assert len(files) > 100
    records = 0
    for path in files:
        content = decompress(path.read_bytes(), str(path))
        keys, values = decode_records(content, str(path), allow_removed=path.suffix == ".delta")
        assert all(len(row) % 8 == 0 for row in [*keys, *values] if row is not None), path
        if "version-2.1.0" not in str(path):  # those have four bytes too many in each value
            assert encode_records(keys, values) == content, path
        assert decompress(compress(content), "f") == content
        records += len(keys)
    assert records > 50


# Damage


def corrupt(data, message):
    with pytest.raises(CorruptState, match=r"^7\.delta: " + message):
        decompress(data, "7.delta")


def test_messages_name_file_and_block():
    block, second = compress(b"hello").removesuffix(END), compress(bytes(99)).removesuffix(END)
    corrupt(b"", "block 1: the file ends after 0 bytes")
    corrupt(b"LZ4Bl", "block 1: the file ends after 5 bytes")
    corrupt(b"PK\3\4....", "block 1: starts with 504b0304")
    corrupt(block, "block 2: the end block is missing")
    corrupt(block + second[:20], "block 2: the file ends in a block's header")
    corrupt(block + second[:-3] + END, "block 2: .*|block 3")
    corrupt(block + second[:-3], "block 2: the file ends 3 bytes before")
    corrupt(block + b"X" + second[1:] + END, "block 2: starts with 585a34426c6f636b instead of LZ4Block")
    corrupt(block + header(token=0x35), "block 2: token 0x35")
    corrupt(header(token=0x20, stored=9, size=1025) + bytes(99), "block 1: impossible lengths: 9 bytes stored for 1025")
    corrupt(header(stored=2**32 - 1, size=4) + bytes(99), "block 1: the file ends")
    corrupt(header(stored=4, size=2**32 - 1) + bytes(99), "block 1: impossible lengths")
    corrupt(header(stored=4) + bytes(99), "block 1: impossible lengths")
    corrupt(header(size=4) + bytes(99), "block 1: impossible lengths")
    corrupt(header(token=0x15, stored=4, size=5) + bytes(99), "block 1: impossible lengths")
    corrupt(header(token=0x2F, stored=4, size=1 << 25) + bytes(99), "block 1: impossible lengths")
    corrupt(header(stored=4, size=40) + b"\xff" * 4, "block 1: ")
    corrupt(block[:-1] + b"?" + END, "block 1: the checksum")
    corrupt(block + header(checksum=1), "block 2: the end block has a checksum")
    corrupt(block + END + b"\0", "block 2: 1 bytes after the end block")
    corrupt(block + END + block + END, "block 2: 47 bytes after")


def test_zstd_messages_name_file_and_block():
    frame = compress(random.Random(1).randbytes(300_000), "zstd")
    corrupt(frame[:4], "block 1: the file ends in the frame's header")
    corrupt(frame[:-1], "block 3: the file has")
    corrupt(frame[:200_000], "block 2: the file ends before the last block|block 3: ")
    corrupt(frame + b"\0", "block 3: the file has")
    corrupt(frame + frame, "block 3: the file has")
    corrupt(frame[:4] + b"\x27" + frame[5:], "block 1: the frame's flags are 0x27")
    corrupt(frame[:5] + struct.pack("<I", 2**32 - 1) + frame[9:], "block 3: the frame claims 4294967295 bytes")
    corrupt(frame[:9] + b"\xff\xff\xff" + frame[12:], "block 1: impossible header 0xffffff")
    corrupt(frame[:99] + b"????" + frame[103:], "blocks 1 to 3: ")
    loose = spark_like_zstd(b"hello " * 99)
    corrupt(loose[:-1], "block 1: the file has")
    corrupt(loose[:5] + b"\xff" + loose[6:], "blocks 1 to 1: ")  # a window of terabytes


def read(file):
    return decode_records(decompress(file, "f"), "f")


@pytest.mark.parametrize("name", SMALL)
def test_every_flipped_bit_is_seen_or_harmless(name):
    file = SMALL[name]
    assert read(file) == (KEYS, VALUES)
    seen = 0
    tracemalloc.start()
    try:
        for bit in range(8 * len(file)):
            damaged = bytearray(file)
            damaged[bit // 8] ^= 1 << bit % 8
            try:
                assert read(damaged) == (KEYS, VALUES), f"bit {bit} changes what is read"
            except CorruptState:
                seen += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen > 7.5 * len(file)
    assert peak < MEBIBYTE


def test_a_flipped_bit_in_zstd_without_checksum_is_never_anything_worse_than_other_content():
    file = spark_like_zstd(RECORDS)
    for bit in range(8 * len(file)):
        damaged = bytearray(file)
        damaged[bit // 8] ^= 1 << bit % 8
        with suppress(CorruptState):
            assert len(decompress(damaged, "f")) < MEBIBYTE


@pytest.mark.parametrize("file", [*SMALL.values(), spark_like_zstd(RECORDS)], ids=[*SMALL, "zstd, loose"])
def test_every_truncation_is_seen(file):
    for size in range(len(file)):
        with pytest.raises(CorruptState, match=r"^f: block"):
            decompress(file[:size], "f")


@pytest.mark.parametrize("name", SMALL)
@given(st.data())
@settings(deadline=None)
def test_overwritten_parts_are_seen_or_harmless(name, data):
    file = SMALL[name]
    at = data.draw(st.integers(0, len(file)))
    junk = data.draw(st.binary(max_size=30))
    damaged = file[:at] + junk + file[at + data.draw(st.integers(0, 30)) :]
    with suppress(CorruptState, *[InvalidRequest] * (at == 0)):  # at 0 the junk can be another codec's magic number
        assert read(damaged) == (KEYS, VALUES)


# Spark


@pytest.fixture(scope="module")
def spark_stream(spark):
    """Compress or decompress as Spark's own codec of a class name does."""
    jvm = spark.sparkContext._jvm

    def make(name, settings):
        conf = spark.sparkContext._jsc.sc().conf().clone()
        for key, value in settings.items():
            conf.set(key, value)
        return getattr(jvm.org.apache.spark.io, name)(conf)

    class Stream:
        def write(self, name, data, **settings):
            sink = jvm.java.io.ByteArrayOutputStream()
            stream = make(name, settings).compressedOutputStream(sink)
            stream.write(data)
            stream.close()
            return bytes(sink.toByteArray())

        def read(self, name, data):
            stream = make(name, {}).compressedInputStream(jvm.java.io.ByteArrayInputStream(data))
            return bytes(stream.readAllBytes())

    return Stream()


CONTENTS = {
    "nothing": b"",
    "records": RECORDS,
    "blocks": random.Random(2).randbytes(50_000) + bytes(200_000) + RECORDS * 200,
}


@pytest.mark.spark
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", CONTENTS)
def test_spark_reads_what_we_write(spark_stream, codec, name):
    assert spark_stream.read(SPARK_CODECS[codec], compress(CONTENTS[name], codec)) == CONTENTS[name]


@pytest.mark.spark
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", CONTENTS)
def test_we_read_what_spark_writes(spark_stream, codec, name):
    assert decompress(spark_stream.write(SPARK_CODECS[codec], CONTENTS[name]), "f") == CONTENTS[name]


@pytest.mark.spark
@pytest.mark.parametrize("size", ["64b", "4k", "1m", "32m"])
def test_spark_may_be_set_to_other_block_sizes(spark_stream, size):
    name = SPARK_CODECS["lz4"]
    file = spark_stream.write(name, CONTENTS["blocks"], **{"spark.io.compression.lz4.blockSize": size})
    assert decompress(file, "f") == CONTENTS["blocks"]


@pytest.mark.spark
def test_spark_may_be_set_to_a_higher_zstd_level(spark_stream):
    name = SPARK_CODECS["zstd"]
    file = spark_stream.write(name, CONTENTS["blocks"], **{"spark.io.compression.zstd.level": "19"})
    assert decompress(file, "f") == CONTENTS["blocks"]


@pytest.mark.spark
@pytest.mark.parametrize(("codec", "name"), [("snappy", "SnappyCompressionCodec"), ("lzf", "LZFCompressionCodec")])
def test_other_codecs_of_spark_are_named(spark_stream, codec, name):
    with pytest.raises(InvalidRequest, match=f"f: compressed with {codec};"):
        decompress(spark_stream.write(name, RECORDS), "f")


@pytest.mark.spark
def test_spark_itself_takes_streams_without_end_or_several(spark_stream):
    """What the framing's description says of Spark; if this changes, we may follow."""
    block = compress(b"hello").removesuffix(END)
    assert spark_stream.read(SPARK_CODECS["lz4"], block) == b"hello"
    assert spark_stream.read(SPARK_CODECS["lz4"], block + END + block + END) == b"hellohello"


@pytest.mark.spark
def test_spark_sees_damage_in_our_zstd_files(spark_stream):
    file = bytearray(compress(RECORDS, "zstd"))
    file[-1] ^= 1
    with pytest.raises(Exception, match="checksum"):
        spark_stream.read(SPARK_CODECS["zstd"], bytes(file))
