"""Deduplication: pass on each event once, and forget ids that are too old to come again.

An id is forgotten when it comes again after the watermark has passed it. To forget ids that never come again, use an
operator by partition, which sees all of its state.
"""

import holdfast as hf


def first_seen(key, rows, state):
    """Put out the earliest event of an id, unless the id was seen before."""
    if state.exists and state.watermark is not None and state.get().at < state.watermark:
        state.remove()
    if not state.exists:
        first = min(rows, key=lambda row: row.at)
        state.update((first.at,))
        yield key.id, first.at, first.body


def deduplicated(events):
    """Take (id string, at timestamp, body string); give each id once within ten minutes."""
    return hf.group_by(events.withWatermark("at", "10 minutes"), "id").apply(
        first_seen, output="id string, at timestamp, body string", state="at timestamp"
    )


def main(spark, folder, output, checkpoint):
    """Copy a folder of JSON files to one of Parquet files without repetitions."""
    events = spark.readStream.schema("id string, at timestamp, body string").json(folder)
    writer = deduplicated(events).writeStream.format("parquet").option("path", output)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    import sys

    from pyspark.sql import SparkSession

    main(SparkSession.builder.getOrCreate(), *sys.argv[1:])
