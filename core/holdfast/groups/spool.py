"""Batches kept in order: in memory up to a limit, then in a temporary file."""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


class Spool:
    """Record batches of one schema: append them, then read them once, in order."""

    def __init__(self, memory_limit_bytes: int, spill_dir: str) -> None:
        self._limit = memory_limit_bytes
        self._spill_dir = spill_dir
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: Any = None
        self.nbytes = 0
        """Bytes of all batches, wherever they are."""

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch at the end."""
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        self.nbytes += batch.nbytes
        if self._held_bytes > self._limit:
            self._spill()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give the batches, first to last, and let go of each."""
        if self._writer is not None:
            self._writer.close()
            try:
                yield from _batches(self._file)
            finally:
                self._drop_file()
        held, self._held, self._held_bytes, self.nbytes = self._held, [], 0, 0
        held.reverse()
        while held:
            yield held.pop()

    def close(self) -> None:
        """Let go of everything. May be called at any time, and again."""
        self._held = []
        self._drop_file()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spill(self) -> None:
        try:
            if self._writer is None:
                # It has no name in the folder, so that even a killed process leaves nothing behind.
                self._file = tempfile.TemporaryFile(dir=self._spill_dir, prefix="holdfast-")  # noqa: SIM115
                self._writer = pa.ipc.new_stream(self._file, self._held[0].schema)
            for batch in self._held:
                self._writer.write_batch(batch)
        except OSError as error:
            raise Unavailable(
                f"a batch of {self._held_bytes:,} bytes could not be written to {self._spill_dir}: {error}; "
                "free space there, choose another folder, or raise the memory limit"
            ) from error
        self._held, self._held_bytes = [], 0

    def _drop_file(self) -> None:
        file, self._file, self._writer = self._file, None, None
        if file is not None:
            file.close()


def _batches(file: IO[bytes] | None) -> Iterator[pa.RecordBatch]:
    assert file is not None  # noqa: S101 - there is a file where there is a writer
    file.seek(0)
    yield from pa.ipc.open_stream(file)
