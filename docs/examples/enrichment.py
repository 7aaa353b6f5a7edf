"""Enrichment: orders get the address that their customer has at that time; addresses change now and then.

Both streams become one, because an operator has one input: a row is an order, or a new address.
"""

import holdfast as hf


def with_address(key, rows, state):
    """Keep the newest address of a customer, and put it beside each order."""
    (address,) = state.get((None,))
    for row in sorted(rows, key=lambda row: row.at):
        if row.address is not None:
            address = row.address
        else:
            yield key.customer, row.order_id, address
    state.update((address,))


def enriched(orders, addresses):
    """Take (customer, at, order_id) and (customer, at, address); give (customer, order_id, address)."""
    events = orders.selectExpr("customer", "at", "order_id", "string(null) as address").unionByName(
        addresses.selectExpr("customer", "at", "bigint(null) as order_id", "address")
    )
    return hf.group_by(events, "customer").apply(
        with_address, output="customer string, order_id long, address string", state="address string"
    )


def main(spark, order_folder, address_folder, output, checkpoint):
    """Follow two folders of JSON files."""
    orders = spark.readStream.schema("customer string, at timestamp, order_id long").json(order_folder)
    addresses = spark.readStream.schema("customer string, at timestamp, address string").json(address_folder)
    writer = enriched(orders, addresses).writeStream.format("parquet").option("path", output)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    import sys

    from pyspark.sql import SparkSession

    main(SparkSession.builder.getOrCreate(), *sys.argv[1:])
