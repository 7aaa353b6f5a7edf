"""Bulk row codecs against a per-row loop with `struct`, the way one would write it by hand.

    python tests/bench/bench_rows.py [--rows 200000] [--repeats 15] [--json FILE]

Prints how many times faster encoding and decoding are, and exits with 1 if either is under the target for key rows
(string) or value rows (long, long). The two sides alternate within one run and the best of each counts, so that a busy
machine slows both. The loop starts from Python values and ends with them, the codec from and with Arrow: neither is
charged for conversions that the other would not need.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.rows import RowCodec

TARGET = 5.0

PADDING = [bytes(-n % 8) for n in range(8)]


def encode_strings(values):
    pack = struct.Struct("<qQ").pack
    rows = []
    append = rows.append
    for value in values:
        if value is None:
            append(pack(1, 0))
            continue
        data = value.encode()
        size = len(data)
        append(pack(0, 16 << 32 | size) + data + PADDING[size & 7])
    return rows


def decode_strings(rows):
    unpack = struct.Struct("<qII").unpack_from
    values = []
    append = values.append
    for row in rows:
        null, size, offset = unpack(row)
        append(None if null else row[offset : offset + size].decode())
    return values


def encode_longs(values):
    pack = struct.Struct("<qqq").pack
    rows = []
    append = rows.append
    for first, second in values:
        if first is None or second is None:
            append(pack((first is None) | (second is None) << 1, first or 0, second or 0))
        else:
            append(pack(0, first, second))
    return rows


def decode_longs(rows):
    unpack = struct.Struct("<qqq").unpack_from
    values = []
    append = values.append
    for row in rows:
        nulls, first, second = unpack(row)
        append((None if nulls & 1 else first, None if nulls & 2 else second) if nulls else (first, second))
    return values


def best(repeats, *functions):
    """Shortest time of each function, run in turn."""
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[index] = min(times[index], time.perf_counter() - start)
    return times


def compare(name, batch, values, encode_loop, decode_loop, repeats):
    """Time one schema both ways, having checked that both ways give the same."""
    codec = RowCodec(batch.schema)
    rows = codec.encode(batch)
    row_list = rows.to_pylist()
    assert encode_loop(values) == row_list, "the loop and the codec encode differently"
    assert decode_loop(row_list) == values
    assert codec.decode(rows).equals(batch)
    encode, by_loop = best(repeats, lambda: codec.encode(batch), lambda: encode_loop(values))
    decode, decode_list, back_by_loop = best(
        repeats, lambda: codec.decode(rows), lambda: codec.decode(row_list), lambda: decode_loop(row_list)
    )
    size = sum(map(len, row_list))
    return {
        "rows": name,
        "encode_ratio": by_loop / encode,
        "decode_ratio": back_by_loop / decode,
        "decode_from_list_ratio": back_by_loop / decode_list,
        "encode_mb_s": size / encode / 1e6,
        "decode_mb_s": size / decode / 1e6,
        "bytes": size,
    }


def nested(count, repeats):
    """Speed of a nested schema, for information: nobody would write that loop by hand."""
    codec = RowCodec("id long, tags array<string>, m map<string,int>, s struct<a:int,b:decimal(20,3)>")
    few = [
        {"id": n, "tags": [f"t{n % 7}"] * (n % 4), "m": [("k", n)], "s": {"a": n, "b": n % 1000}} for n in range(1000)
    ]
    block = pa.RecordBatch.from_pylist(few, schema=codec.schema)
    batch = pa.Table.from_batches([block] * (count // 1000)).combine_chunks().to_batches()[0]
    rows = codec.encode(batch)
    encode, decode = best(repeats, lambda: codec.encode(batch), lambda: codec.decode(rows))
    size = rows.nbytes - 8 * (len(rows) + 1)
    return {"rows": "nested", "encode_mb_s": size / encode / 1e6, "decode_mb_s": size / decode / 1e6, "bytes": size}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    rng = np.random.default_rng(42)
    users = [f"user-{n}" for n in rng.integers(0, 10**6, options.rows).tolist()]
    longs = rng.integers(-(2**62), 2**62, (options.rows, 2))
    keys = pa.record_batch({"user": users})
    numbers = pa.record_batch({"n": longs[:, 0], "total": longs[:, 1]})
    pairs = list(map(tuple, longs.tolist()))
    results = [
        compare("key (string)", keys, users, encode_strings, decode_strings, options.repeats),
        compare("value (long, long)", numbers, pairs, encode_longs, decode_longs, options.repeats),
        nested(options.rows, max(options.repeats // 3, 1)),
    ]
    print(f"{options.rows:,} rows, best of {options.repeats}; times faster than a struct loop")
    print(f"{'rows':20}{'encode':>9}{'decode':>9}{'from list':>11}{'enc MB/s':>10}{'dec MB/s':>10}")
    for result in results:
        ratios = [result.get(key) for key in ("encode_ratio", "decode_ratio", "decode_from_list_ratio")]
        shown = ["-" if ratio is None else f"{ratio:.1f}x" for ratio in ratios]
        print(
            f"{result['rows']:20}{shown[0]:>9}{shown[1]:>9}{shown[2]:>11}"
            f"{result['encode_mb_s']:>10.0f}{result['decode_mb_s']:>10.0f}"
        )
    if options.json:
        options.json.write_text(json.dumps({"rows": options.rows, "target": TARGET, "results": results}, indent=2))
    slow = [
        f"{kind} of {result['rows']} is {result[kind + '_ratio']:.2f}x, target {TARGET}x"
        for result in results
        for kind in ("encode", "decode")
        if result.get(f"{kind}_ratio", TARGET) < TARGET
    ]
    for line in slow:
        print(line, file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
