"""A small streaming query: running totals of orders by user, one file for each micro-batch."""

import json

import holdfast as hf

ORDERS = "user string, amount long"


def add_orders(folder, name, *orders):
    """Add a micro-batch."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"user": user, "amount": amount}) for user, amount in orders]
    hidden = folder / f".{name}"
    hidden.write_text("\n".join(lines))
    hidden.rename(folder / name)


def totals(spark, folder, checkpoint, provider):
    """Run the query on all there is; returns what each batch put out."""
    batches = []

    def running_total(key, rows, state):
        n, total = state.get((0, 0))
        for row in rows:
            n, total = n + 1, total + row.amount
        state.update((n, total))
        yield (*key, n, total)

    def collect(batch, _):
        batches.append(sorted(tuple(row) for row in batch.collect()))

    orders = spark.readStream.schema(ORDERS).option("maxFilesPerTrigger", 1).json(str(folder))
    grouped = hf.group_by(orders, "user", partitions=2, provider=provider)
    frame = grouped.apply(running_total, output="user string, n long, total long", state="n long, total long")
    query = (
        frame.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return batches
