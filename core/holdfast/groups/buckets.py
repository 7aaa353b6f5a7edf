"""The rows of a partition, gathered so that all rows of a key come out together, in memory or through disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.errors import InvalidRequest
from holdfast.groups.spool import Spool
from holdfast.rows import RowCodec
from holdfast.rows.words import WORD, offsets_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.rows.words import Ints, Words

_BUCKETS = 64
_LEVELS = 4
"""How often a bucket that is still too large is divided again. What is larger after that is one key, or few."""

MAX_BYTES_HELD = 1 << 30
"""Held at most, whatever the limit: a column of strings must stay under Arrow's 2 GiB."""


class Buckets:
    """Batches with key columns, divided by the hash of their keys as soon as they exceed the memory limit."""

    def __init__(
        self,
        memory_limit_bytes: int,
        spill_dir: str,
        key_schema: pa.Schema,
        compact: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
        level: int = 0,
    ) -> None:
        """Take the columns that are the key; `compact` makes fewer rows of many that may have equal keys."""
        self._limit = min(memory_limit_bytes, MAX_BYTES_HELD)
        self._spill_dir = spill_dir
        self._codec = RowCodec(key_schema)
        self._compact = compact
        self._level = level
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._spools: list[Spool] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch; rows of one key keep their order."""
        self._hold(batch)
        if self._held_bytes <= self._limit:
            return
        if self._compact is not None and len(self._held) > 1:
            compacted = self._compact(whole(self._take_held()))
            self._hold(compacted)
            # Half full at least must become free, or the next batch would compact again.
            if self._held_bytes <= self._limit // 2:
                return
        self._spill()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give all rows once; those of one key are in one batch."""
        if self._spools:
            self._spill()
            for spool in self._spools:
                yield from self._divided(spool)
            self._spools = []
        elif self._held:
            yield whole(self._take_held())

    def close(self) -> None:
        """Let go of everything. May be called at any time, and again."""
        self._take_held()
        for spool in self._spools:
            spool.close()

    def _hold(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_bytes += batch.nbytes

    def _take_held(self) -> list[pa.RecordBatch]:
        held, self._held, self._held_bytes = self._held, [], 0
        return held

    def _spill(self) -> None:
        if not self._spools:
            self._spools = [Spool(0, self._spill_dir) for _ in range(_BUCKETS)]
        for batch in self._take_held():
            hashes = _hashes(self._codec.encode(batch.select(self._codec.schema.names)))
            # The top bits are the best mixed; each level takes its own.
            buckets = (hashes >> np.uint64(58 - 6 * self._level)).astype(np.int64) % _BUCKETS
            order = np.argsort(buckets, kind="stable")
            ends = np.cumsum(np.bincount(buckets, minlength=_BUCKETS))
            for spool, rows in zip(self._spools, np.split(order, ends[:-1]), strict=True):
                if len(rows):
                    spool.append(batch.take(pa.array(rows)))

    def _divided(self, spool: Spool) -> Iterator[pa.RecordBatch]:
        if spool.nbytes <= self._limit or self._level + 1 == _LEVELS:
            if spool.nbytes:
                yield whole(list(spool.drain()))
            return
        smaller = Buckets(self._limit, self._spill_dir, self._codec.schema, self._compact, self._level + 1)
        try:
            for batch in spool.drain():
                smaller.add(batch)
            yield from smaller.drain()
        finally:
            smaller.close()


def whole(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one."""
    if len(batches) == 1:
        return batches[0]
    combined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if len(combined) != 1:
        raise InvalidRequest(
            "a column of the rows of one key exceeds 2 GiB in one micro-batch; let the source give less at a time "
            "(maxFilesPerTrigger, maxOffsetsPerTrigger, ...) or drop the column before grouping"
        )
    return combined[0]


def _hashes(rows: pa.Array) -> Words:
    """Hash encoded rows, each of whole words and of one at least."""
    offsets: Ints = offsets_in(rows, large=True) >> 3
    words = np.frombuffer(rows.buffers()[2], WORD, offsets[-1])
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    # Multiplied by where it stands, so that the same words in another order are another hash.
    mixed = _mix(words ^ _mix(place.astype(WORD) + np.uint64(1)))
    return _mix(np.add.reduceat(mixed, offsets[:-1]))


def _mix(words: Words) -> Words:
    """The finalizer of splitmix64."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return words ^ words >> np.uint64(31)
