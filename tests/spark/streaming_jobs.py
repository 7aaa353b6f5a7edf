"""Small streaming queries: a folder whose files are the batches, and what an operator put out for each."""

import os

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.rows import arrow_schema

_LONG_AGO = 1_700_000_000


class Input:
    """A folder of files; each becomes a micro-batch of its own."""

    def __init__(self, spark, folder, schema, first=0):
        self.spark = spark
        self._folder = folder
        self._schema = schema
        self._files = first
        folder.mkdir()

    def add(self, *rows):
        """Add a batch of tuples."""
        schema = arrow_schema(self._schema)
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        self.add_table(
            pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
        )

    def add_table(self, table):
        """Add a batch of an Arrow table."""
        hidden = self._folder / f"_{self._files}.parquet"
        pq.write_table(table, hidden)
        # Spark takes files in the order of their times, which may be too coarse to tell two apart.
        os.utime(hidden, (_LONG_AGO + self._files, _LONG_AGO + self._files))
        hidden.rename(self._folder / f"{self._files}.parquet")
        self._files += 1

    def stream(self):
        """The folder as a streaming DataFrame."""
        return self.spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1).parquet(str(self._folder))


def run(frame, checkpoint, mode="append"):
    """Run a query on all there is, and return it and, batch by batch, the rows that it put out."""
    batches = []

    def collect(batch, _):
        batches.append([tuple(row) for row in batch.collect()])

    query = (
        frame.writeStream.foreachBatch(collect)
        .outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query, batches


def outputs(frame, checkpoint):
    """The rows that a query puts out, sorted, batch by batch."""
    return [sorted(batch) for batch in run(frame, checkpoint)[1]]
