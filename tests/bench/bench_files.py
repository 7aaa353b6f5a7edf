"""State files: what Holdfast adds to the work of the compression library.

    python tests/bench/bench_files.py [--changes 50000] [--records 1000000] [--repeats 15] [--json FILE]

Encoding and compressing a delta (string keys, two longs) is compared with one call of `lz4.block.compress` over the
same bytes, and decoding a snapshot with one call of `lz4.block.decompress`. Exits with 1 if a delta takes longer than
the target. The sides alternate within one run and the best of each counts, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import lz4.block
import numpy as np
import pyarrow as pa
from bench_rows import best

from holdfast.checkpoint.framing import compress, decompress
from holdfast.checkpoint.records import decode_records, encode_records
from holdfast.rows import RowCodec

TARGET = 3.0
"""Encode and compress; with publishing, the aim is 4."""


def rows(count, rng):
    """Encoded keys and values of that many users, as an aggregation with a count and a sum has them."""
    users = [f"user-{n}" for n in rng.permutation(20 * count)[:count].tolist()]
    numbers = {"count": rng.integers(1, 1000, count), "sum": rng.integers(0, 10**6, count)}
    keys = RowCodec("user string").encode(pa.record_batch({"user": users}))
    values = RowCodec("count long, sum long").encode(pa.record_batch(numbers))
    return keys.to_pylist(), values.to_pylist()


def write_delta(count, repeats, rng):
    """Encode and compress the changes of one commit."""
    keys, values = rows(count, rng)
    data = encode_records(keys, values)
    assert decode_records(decompress(compress(data), "delta"), "delta") == (keys, values)
    removed = [None if n % 10 == 0 else value for n, value in enumerate(values)]
    plain, both, with_removals, encode, frame, zstd = best(
        repeats,
        lambda: lz4.block.compress(data, store_size=False),
        lambda: compress(encode_records(keys, values)),
        lambda: compress(encode_records(keys, removed)),
        lambda: encode_records(keys, values),
        lambda: compress(data),
        lambda: compress(data, "zstd"),
    )
    return {
        "work": "write a delta",
        "records": count,
        "bytes": len(data),
        "stored_bytes": len(compress(data)),
        "lz4_block_ms": plain * 1e3,
        "encode_and_compress_ratio": both / plain,
        "one_in_ten_removed_ratio": with_removals / plain,
        "encode_ratio": encode / plain,
        "compress_ratio": frame / plain,
        "zstd_compress_ratio": zstd / plain,
    }


def read_snapshot(count, repeats, rng):
    """Decompress and decode a whole state, with rows of several lengths and with rows of one."""
    keys, values = rows(count, rng)
    data = encode_records(keys, values)
    longest = max(map(len, keys))
    alike = encode_records([key.ljust(longest, b"\0") for key in keys], values)
    file, block = compress(data), lz4.block.compress(data, store_size=False)
    plain, both, unpack, decode, decode_alike = best(
        repeats,
        lambda: lz4.block.decompress(block, uncompressed_size=len(data)),
        lambda: decode_records(decompress(file, "snapshot"), "snapshot"),
        lambda: decompress(file, "snapshot"),
        lambda: decode_records(data, "snapshot"),
        lambda: decode_records(alike, "snapshot"),
    )
    return {
        "work": "read a snapshot",
        "records": count,
        "bytes": len(data),
        "lz4_block_ms": plain * 1e3,
        "decompress_ratio": unpack / plain,
        "decompress_and_decode_ms": both * 1e3,
        "decode_ns_per_record": decode / count * 1e9,
        "decode_alike_ns_per_record": decode_alike / count * 1e9,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=int, default=50_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    rng = np.random.default_rng(42)
    delta = write_delta(options.changes, options.repeats, rng)
    results = [delta, read_snapshot(options.records, max(options.repeats // 3, 1), rng)]
    print(f"best of {options.repeats}; ratios to one call of lz4.block over the same bytes")
    for result in results:
        print(f"\n{result['work']}, {result['records']:,} records, {result['bytes']:,} bytes")
        for name, figure in result.items():
            if isinstance(figure, float):
                print(f"  {name:28}{figure:>9.2f}")
    if options.json:
        options.json.write_text(json.dumps({"target": TARGET, "results": results}, indent=2) + "\n")
    return 0 if delta["encode_and_compress_ratio"] <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
