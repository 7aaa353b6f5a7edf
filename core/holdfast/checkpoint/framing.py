"""The compressed byte stream of a state file: lz4-java's blocks, or one zstd frame.

An lz4 file is a row of blocks. Each starts with a header of 21 bytes::

    8  "LZ4Block"
    1  token: high half 1 raw or 2 compressed; low half n, for blocks of up to 2 ** (10 + n) bytes
    4  stored length       (little-endian, as the next two)
    4  original length
    4  xxHash32 of the original, without its top four bits

and a block of length 0 ends the file. Spark itself reads on after such a block and accepts a file without one. Here
both are damage: Spark never writes them, and a cut that falls between two blocks would otherwise go unseen.

A zstd file is one frame. Spark's carry neither checksum nor content size, so damage inside a block can pass for
content; ours carry both, and every decoder checks them.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import TYPE_CHECKING, NoReturn

import lz4.block
import pyarrow as pa
from xxhash import xxh32_intdigest, xxh64_intdigest

from holdfast.errors import CorruptState, InvalidRequest, InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LZ4_MAGIC = b"LZ4Block"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
UNREADABLE = {"snappy": b"\x82SNAPPY\x00", "lzf": b"ZV"}
"""What else Spark can be told to write."""

BLOCK_SIZE = 32 * 1024
RAW, LZ4 = 0x10, 0x20
LEVEL_BASE = 10
LEVEL = (BLOCK_SIZE - 1).bit_length() - LEVEL_BASE
SEED = 0x9747B28C
CHECKSUM_MASK = 0x0FFFFFFF
HEADER = struct.Struct("<8sBIII")
END = HEADER.pack(LZ4_MAGIC, RAW | LEVEL, 0, 0, 0)

ZSTD_LEVEL = 1
ZSTD_BLOCK_SIZE = 128 * 1024
ZSTD_CHECKSUM = 0b100
ZSTD_REFUSED = 0b1011
ZSTD_CHUNK = 1 << 20
"""What is read at a time where the size is not known before, or large."""
ZSTD_WHOLE = 1 << 28
"""What is read in one go."""


def compress(data: bytes | bytearray | memoryview, codec: str = "lz4") -> bytes:
    """The content of a file as Spark's codec of that name writes it."""
    try:
        writer = WRITERS[codec]
    except KeyError:
        raise InvalidSetting(f"codec {codec!r}: state files can be written with {' or '.join(WRITERS)}") from None
    return writer(memoryview(data).cast("B"))


def compress_parts(parts: Iterable[bytes | bytearray | memoryview], codec: str = "lz4") -> bytes:
    """The same as `compress` of all parts together; with lz4 no more than one of them is held uncompressed."""
    if codec != "lz4":
        return compress(b"".join(parts), codec)
    written = BytesIO()  # gives out what it holds without a copy
    rest = b""
    for part in parts:
        data = b"".join((rest, part))
        whole = len(data) - len(data) % BLOCK_SIZE
        written.write(_write_lz4(memoryview(data)[:whole])[: -len(END)])
        rest = data[whole:]
    written.write(_write_lz4(memoryview(rest)))
    return written.getvalue()


def decompress(data: bytes | bytearray | memoryview, where: str) -> bytes:
    """The bytes that were compressed, by whichever codec the first bytes name.

    Anything that is not exactly one whole stream is CorruptState with `where` and the number of the block, from 1.
    """
    return b"".join(decompress_blocks(data, where))


def decompress_blocks(data: bytes | bytearray | memoryview, where: str) -> Iterator[bytes | memoryview]:
    """What `decompress` returns, block by block; damage shows when its block is reached."""
    view = memoryview(data).cast("B")
    start = bytes(view[:8])
    for magic, reader in READERS.items():
        if start.startswith(magic):
            return reader(view, where)
    for codec, magic in UNREADABLE.items():
        if start.startswith(magic):
            raise InvalidRequest(f"{where}: compressed with {codec}; {' and '.join(WRITERS)} are supported")
    if any(magic.startswith(start) for magic in READERS):
        raise CorruptState(f"{where}: block 1: the file ends after {len(start)} bytes")
    raise CorruptState(f"{where}: block 1: starts with {start.hex()}, which no known codec writes")


def _fail(where: str, block: int, problem: str) -> NoReturn:
    raise CorruptState(f"{where}: block {block}: {problem}")


def _write_lz4(view: memoryview) -> bytes:
    parts: list[bytes | memoryview] = []
    for start in range(0, len(view), BLOCK_SIZE):
        block = view[start : start + BLOCK_SIZE]
        size = len(block)
        checksum = xxh32_intdigest(block, SEED) & CHECKSUM_MASK
        packed = lz4.block.compress(block, store_size=False)
        if len(packed) < size:
            parts += HEADER.pack(LZ4_MAGIC, LZ4 | LEVEL, len(packed), size, checksum), packed
        else:
            parts += HEADER.pack(LZ4_MAGIC, RAW | LEVEL, size, size, checksum), block
    parts.append(END)
    return b"".join(parts)


def _read_lz4(view: memoryview, where: str) -> Iterator[bytes | memoryview]:
    position, end, block = 0, len(view), 0
    while True:
        block += 1
        body = position + HEADER.size
        if body > end:
            _fail(where, block, "the file ends in a block's header" if position < end else "the end block is missing")
        magic, token, stored, size, checksum = HEADER.unpack_from(view, position)
        method = token & 0xF0
        if magic != LZ4_MAGIC:
            _fail(where, block, f"starts with {magic.hex()} instead of {LZ4_MAGIC.decode()}")
        if method not in (RAW, LZ4):
            _fail(where, block, f"token {token:#04x} names no known method")
        # Before anything is allocated by it: a damaged length can say 4 GiB. LZ4 never packs better than 255 to 1.
        largest = min(1 << (LEVEL_BASE + (token & 0x0F)), 255 * stored)
        if size > largest or (size == 0 and stored) or (method == RAW and size != stored):
            _fail(where, block, f"impossible lengths: {stored} bytes stored for {size}")
        if size == 0:
            break
        position = body + stored
        if position > end:
            _fail(where, block, f"the file ends {position - end} bytes before the block does")
        content = view[body:position]
        if method == LZ4:
            try:
                content = lz4.block.decompress(content, uncompressed_size=size)
            except (lz4.block.LZ4BlockError, ValueError) as error:
                raise CorruptState(f"{where}: block {block}: {error}") from error
        if len(content) != size:
            _fail(where, block, f"unpacks to {len(content)} bytes instead of {size}")
        if xxh32_intdigest(content, SEED) & CHECKSUM_MASK != checksum:
            _fail(where, block, "the checksum does not match the content")
        yield content
    if checksum:
        _fail(where, block, "the end block has a checksum")
    if body != end:
        _fail(where, block, f"{end - body} bytes after the end block")


def _write_zstd(view: memoryview) -> bytes:
    frame = bytearray(pa.Codec("zstd", compression_level=ZSTD_LEVEL).compress(view, asbytes=True))
    # Arrow cannot be asked for the checksum; the format has it as a flag and four more bytes at the end.
    frame[len(ZSTD_MAGIC)] |= ZSTD_CHECKSUM
    frame += (xxh64_intdigest(view) & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(frame)


def _read_zstd(view: memoryview, where: str) -> Iterator[bytes | memoryview]:
    size, blocks = _zstd_frame(view, where)
    try:
        if size is not None and size <= ZSTD_WHOLE:
            yield pa.Codec("zstd").decompress(view, decompressed_size=size, asbytes=True)
            return
        with pa.CompressedInputStream(pa.BufferReader(view), "zstd") as stream:
            yield from iter(lambda: stream.read(ZSTD_CHUNK), b"")
    except (OSError, pa.ArrowException) as error:
        raise CorruptState(f"{where}: blocks 1 to {blocks}: {error}") from error


def _zstd_frame(view: memoryview, where: str) -> tuple[int | None, int]:
    """The content's size, where the frame tells it, and the number of blocks, after a walk over their headers.

    Arrow does not say where a frame ends, and would take what follows for another.
    """
    end = len(view)
    position = len(ZSTD_MAGIC) + 1
    if position > end:
        _fail(where, 1, "the file ends in the frame's header")
    flags = view[position - 1]
    if flags & ZSTD_REFUSED:
        _fail(where, 1, f"the frame's flags are {flags:#04x}: reserved, or for a dictionary")
    single = flags >> 5 & 1
    position += not single
    width = (single, 2, 4, 8)[flags >> 6]
    size = None
    if width:
        size = int.from_bytes(view[position : position + width], "little") + (256 if width == 2 else 0)
        position += width
    block, possible, last = 0, 0, 0
    while not last:
        block += 1
        if position + 3 > end:
            _fail(where, block, "the file ends before the last block")
        header = int.from_bytes(view[position : position + 3], "little")
        last, kind, length = header & 1, header >> 1 & 3, header >> 3
        if kind == 3 or length > ZSTD_BLOCK_SIZE:
            _fail(where, block, f"impossible header {header:#08x}")
        possible += ZSTD_BLOCK_SIZE if kind == 2 else length
        position += 3 + (1 if kind == 1 else length)  # kind 1: one byte, repeated
    position += 4 if flags & ZSTD_CHECKSUM else 0
    if position != end:
        _fail(where, block, f"the file has {end} bytes, but the frame ends at {position}")
    # Before anything is allocated by it.
    if size is not None and size > possible:
        _fail(where, block, f"the frame claims {size} bytes, but its blocks hold at most {possible}")
    return size, block


WRITERS: dict[str, Callable[[memoryview], bytes]] = {"lz4": _write_lz4, "zstd": _write_zstd}
READERS: dict[bytes, Callable[[memoryview, str], Iterator[bytes | memoryview]]] = {
    LZ4_MAGIC: _read_lz4,
    ZSTD_MAGIC: _read_zstd,
}
