"""The records inside state files: golden bytes, damage, and files of a real Spark query."""

import random
import struct
import time
import tracemalloc
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoint.framing import compress, decompress
from holdfast.checkpoint.records import decode_records, encode_records
from holdfast.errors import CorruptState, InvalidRequest
from holdfast.rows import RowCodec

END = b"\xff\xff\xff\xff"
GOLDEN = bytes.fromhex(
    "00000008" + "6b" * 8 + "00000010" + "76" * 16  # put
    + "00000008" + "71" * 8 + "ffffffff"  # removed
    + "00000000" + "00000000"  # both empty
    + "ffffffff"
)  # fmt: skip
KEYS = [b"k" * 8, b"q" * 8, b""]
VALUES = [b"v" * 16, None, b""]

value_rows = st.integers(0, 5).flatmap(lambda words: st.binary(min_size=8 * words, max_size=8 * words))
any_records = st.lists(st.tuples(st.binary(max_size=20), st.none() | value_rows), max_size=30)
alike_records = st.tuples(st.integers(0, 20), st.integers(0, 4)).flatmap(
    lambda sizes: st.lists(
        st.tuples(
            st.binary(min_size=sizes[0], max_size=sizes[0]),
            st.binary(min_size=8 * sizes[1], max_size=8 * sizes[1]),
        ),
        max_size=10,
    )
)


def test_golden_bytes():
    assert encode_records(KEYS, VALUES) == GOLDEN
    assert decode_records(GOLDEN, "f") == (KEYS, VALUES)


def test_no_records():
    assert encode_records([], []) == END
    assert decode_records(END, "f") == ([], [])


def test_views_of_a_dict_will_do():
    changes = dict(zip(KEYS, VALUES, strict=True))
    assert encode_records(changes.keys(), changes.values()) == GOLDEN


@given(any_records | alike_records)
@settings(deadline=None)
def test_round_trip(records):
    keys, values = [key for key, _ in records], [value for _, value in records]
    data = encode_records(keys, values)
    assert decode_records(data, "f") == (keys, values)
    if None not in values:
        assert decode_records(data, "f", allow_removed=False) == (keys, values)


@pytest.mark.parametrize("runs", [[31, 1, 32, 33], [600, 1, 5000, 3, 40, 1], [1] * 9 + [100] * 3, [40_000, 1, 40_000]])
def test_stretches_of_records_that_are_alike(runs):
    rng = random.Random(3)
    keys, values = [], []
    for shape, run in enumerate(runs):
        noise = rng.randbytes(40)
        keys += [noise[: 16 + shape % 3 * 8] + b"%08d" % n for n in range(run)]
        values += [None if shape % 5 == 1 else noise[: shape % 4 * 8]] * run
    data = encode_records(keys, values)
    assert decode_records(data, "f") == (keys, values)
    with pytest.raises(CorruptState, match=f"byte {len(data) - 4} of the records: the file ends"):
        decode_records(data[:-4], "f")


@pytest.mark.parametrize("odd", ["nothing", "first", "last", "removed"])
def test_records_that_are_almost_alike(odd):
    """Sums of sizes that fit the size of the file do not make records alike."""
    rng = random.Random(4)
    keys = [rng.randbytes(16) for _ in range(1000)]
    values: list[bytes | None] = [rng.randbytes(24) for _ in keys]
    if odd in ("first", "last"):
        at = 0 if odd == "first" else -1
        keys[at], values[at] = rng.randbytes(24), rng.randbytes(16)
    elif odd == "removed":
        keys[500], values[500] = rng.randbytes(40), None
    assert decode_records(encode_records(keys, values), "f") == (keys, values)


def test_values_of_old_spark_lose_what_is_too_much():
    def record(key, value):
        return struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value

    old = b"".join(record(b"k%011d" % n, b"v" * 16 + b"!!!!") for n in range(9)) + END
    # Keys are not cut: Spark never did, and its own are always whole.
    assert decode_records(old, "f") == ([b"k%011d" % n for n in range(9)], [b"v" * 16] * 9)
    assert decode_records(record(b"k", b"1234567") + END, "f") == ([b"k"], [b""])


@pytest.mark.parametrize("sizes", [range(0, 800, 8), [8, 304], [8, 70_000], [1 << 16], [8] * 5, [16, 0, 16]], ids=str)
@pytest.mark.parametrize("remove", [False, True])
def test_rows_of_all_sizes(sizes, remove):
    rng = random.Random(5)
    keys = [rng.randbytes(size) for size in sizes]
    values = [None if remove and n % 2 else rng.randbytes(size) for n, size in enumerate(reversed(sizes))]
    data = b"".join(
        struct.pack(">i", len(key)) + key + (END if value is None else struct.pack(">i", len(value)) + value)
        for key, value in zip(keys, values, strict=True)
    )
    assert encode_records(keys, values) == data + END
    assert decode_records(data + END, "f") == (keys, values)


class Endless(bytes):
    def __len__(self):
        return 2**31


def test_row_checksums_of_spark_are_dropped():
    # As Spark 4.3 wrote it for the words "a" and "b", and the removal of "a".
    a, b = (struct.pack("<qII8s", 0, 1, 16, word) for word in (b"a", b"b"))
    one = struct.pack("<qq", 0, 1)
    size, odd_size = struct.pack(">i", 24), struct.pack(">i", 28)
    checked = struct.pack(">i", 20)
    first, second = bytes.fromhex("9cb3a781"), bytes.fromhex("ff829b4a")
    data = size + a + checked + first + one + size + b + checked + second + one + END
    assert decode_records(data, "f", row_checksums=True) == ([a, b], [one, one])
    data = size + b + checked + second + one + odd_size + b"????" + a + END + END
    assert decode_records(data, "f", row_checksums=True) == ([b, a], [one, None])


def test_what_cannot_be_written():
    with pytest.raises(InvalidRequest, match="a row of 2147483648 bytes"):
        encode_records([b"a"], [Endless()])
    with pytest.raises(InvalidRequest, match="2 keys with 1 values"):
        encode_records([b"a", b"b"], [b""])
    with pytest.raises(InvalidRequest, match="a value of 7 bytes: rows are a multiple of 8 long"):
        encode_records([b"a", b"b"], [b"", b"1234567"])
    with pytest.raises(TypeError):
        encode_records([b"a"], [1])


def corrupt(data, message, **options):
    with pytest.raises(CorruptState, match=r"^3\.snapshot: byte " + message):
        decode_records(data, "3.snapshot", **options)


def test_messages_name_file_and_position():
    corrupt(GOLDEN, "44 of the records: a value of -1 bytes", allow_removed=False)
    corrupt(b"", "0 of the records: the file ends")
    corrupt(GOLDEN[:-4], "56 of the records: the file ends")
    corrupt(GOLDEN + b"\0", "56 of the records: the end mark, but 1 bytes follow")
    corrupt(GOLDEN + END, "56 of the records: the end mark, but 4 bytes follow")
    corrupt(b"\xff\xff\xff\xfe", "0 of the records: a key of -2 bytes")
    corrupt(b"\0\0\0\0\x80\0\0\0" + END, "4 of the records: a value of -2147483648 bytes")
    corrupt(GOLDEN[:12] + b"\x7f\xff\xff\xff" + GOLDEN[16:], "12 of the records: the file ends at 60,")
    corrupt(GOLDEN[:12] + b"\x7f\xff\xff\xf8" + GOLDEN[16:], "12 of the records: the file ends at 60,")
    corrupt(b"\x7f\xff\xff\xff" + GOLDEN[4:], "0 of the records: the file ends")


ALIKE = encode_records([b"k%07d" % n for n in range(5)], [b"v%07d" % n for n in range(5)])


@pytest.mark.parametrize("data", [GOLDEN, ALIKE], ids=["any", "alike"])
def test_every_truncation_is_seen(data):
    for size in range(len(data)):
        with pytest.raises(CorruptState, match=r"^f: byte \d+"):
            decode_records(data[:size], "f")


@pytest.mark.parametrize("data", [GOLDEN, ALIKE], ids=["any", "alike"])
def test_a_flipped_bit_gives_records_or_corrupt_state(data):
    """These bytes carry no checksum: the framing around them does."""
    tracemalloc.start()
    try:
        for bit in range(8 * len(data)):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            with suppress(CorruptState):
                keys, values = decode_records(bytes(damaged), "f")
                assert len(keys) == len(values) <= len(data) // 8
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@given(st.binary(max_size=100))
@settings(deadline=None)
def test_any_bytes_give_records_or_corrupt_state(data):
    with suppress(CorruptState):
        keys, values = decode_records(data, "f")
        assert len(keys) == len(values) <= len(data) // 8


# Spark


@pytest.fixture(params=["lz4", "zstd"])
def spark_conf(request, spark):
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.compression.codec": request.param,
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
        "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
    }
    before = {key: spark.conf.get(key, None) for key in conf}
    # The interval counts when the first store of the JVM is loaded.
    stores = spark.sparkContext._jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    stores.stop()
    for key, value in conf.items():
        spark.conf.set(key, value)
    yield conf
    stores.stop()
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


MAGIC = {"lz4": b"LZ4Block", "zstd": b"\x28\xb5\x2f\xfd"}
PUT_ASIDE_SECONDS = 60


@pytest.mark.spark
def test_state_of_a_real_query(spark, spark_conf, tmp_path):
    """An aggregation whose groups expire: puts and removals, deltas and a snapshot."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    stream = spark.readStream.schema("at timestamp, word string").option("maxFilesPerTrigger", 1).json(str(source))
    counts = stream.withWatermark("at", "1 minute").groupBy("at", "word").count()
    query = (
        counts.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    expected = {}
    try:
        for batch in range(4):
            words = [f"word-{batch}-{n}" * (n % 3 + 1) for n in range(20)]
            at = f"2024-01-01 00:{10 * batch:02}:00"
            expected |= {(at, word): 2 for word in words}
            lines = "".join(f'{{"at": "{at}", "word": "{word}"}}\n' for word in words * 2)
            (tmp_path / "new").write_text(lines)
            (tmp_path / "new").rename(source / f"{batch}.json")
            query.processAllAvailable()
        deadline = time.monotonic() + PUT_ASIDE_SECONDS
        while len(list(checkpoint.glob("state/0/*/*.snapshot"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        query.stop()

    codec = spark_conf["spark.sql.streaming.stateStore.compression.codec"]
    state, removed = {}, 0
    for partition in ("0", "1"):
        held = {}
        folder = checkpoint / "state" / "0" / partition
        versions = sorted(int(path.stem) for path in folder.glob("*.delta"))
        assert versions == list(range(1, len(versions) + 1))
        snapshots = 0
        for version in versions:
            file = (folder / f"{version}.delta").read_bytes()
            assert file.startswith(MAGIC[codec])
            content = decompress(file, f"{version}.delta")
            keys, values = decode_records(content, f"{version}.delta")
            assert encode_records(keys, values) == content
            assert decompress(compress(content, codec), "f") == content
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    removed += held.pop(key, None) is not None
                else:
                    held[key] = value
            snapshot = folder / f"{version}.snapshot"
            if snapshot.exists():
                content = decompress(snapshot.read_bytes(), str(snapshot))
                assert dict(zip(*decode_records(content, str(snapshot), allow_removed=False), strict=True)) == held
                snapshots += 1
        assert snapshots
        state |= held
    assert removed >= 40
    keys = RowCodec("at timestamp, word string").decode(pa.array(state.keys(), pa.binary())).to_pylist()
    counted = RowCodec("count long").decode(pa.array(state.values(), pa.binary())).to_pylist()
    found = {
        (f"{key['at']:%Y-%m-%d %H:%M:%S}", key["word"]): value["count"]
        for key, value in zip(keys, counted, strict=True)
    }
    assert found
    assert found.items() <= expected.items()
    assert {word for word in expected if "word-3-" in word[1]} <= found.keys()
