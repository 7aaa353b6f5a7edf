"""A fraud rule per card: a small payment, and within a minute a large one."""

from datetime import timedelta

import holdfast as hf


def small_then_large(key, rows, state):
    """Remember the last small payment of a card; report a large one that follows it closely."""
    trial = state.get().at if state.exists else None
    for row in sorted(rows, key=lambda row: row.at):
        if row.amount < 1:
            trial = row.at
        elif row.amount > 500 and trial is not None and row.at - trial <= timedelta(minutes=1):
            yield key.card, row.at, row.amount
    if trial is None:
        state.remove()
    else:
        state.update((trial,))


def alerts(payments):
    """Take (card string, at timestamp, amount double); give the payments to look at."""
    return hf.group_by(payments, "card").apply(
        small_then_large, output="card string, at timestamp, amount double", state="at timestamp"
    )


def main(spark, folder, checkpoint):
    """Follow a folder of JSON files and show the alerts."""
    payments = spark.readStream.schema("card string, at timestamp, amount double").json(folder)
    query = alerts(payments).writeStream.format("console").option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    import sys

    from pyspark.sql import SparkSession

    main(SparkSession.builder.getOrCreate(), *sys.argv[1:])
