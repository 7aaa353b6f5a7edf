"""What Spark's own UnsafeProjection makes of a table: the oracle for byte equality."""

import pyarrow as pa


def jvm_rows(spark, batch):
    """UnsafeRow bytes of each row, in order."""
    # PySpark does not transport some slices of nested arrays: "Null bitmap with offsets slice not supported".
    batch = batch.take(pa.array(range(batch.num_rows), pa.int64()))
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    rows = frame._jdf.queryExecution().executedPlan().executeCollect()
    # One call for all rows: an UnsafeRow prints as its words in hexadecimal.
    text = spark._jvm.scala.runtime.ScalaRunTime.stringOf(rows)
    inside = text[len("Array(") : -1]
    return [_bytes(row) for row in inside.replace("], ", "];").split(";")] if inside else []


def _bytes(row):
    words = row.strip("[]").split(",")
    return b"".join(int(word, 16).to_bytes(8, "little") for word in words if word)
