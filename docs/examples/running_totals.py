"""Running totals: for every user, how many orders there were and what they came to."""

import holdfast as hf


def running_totals(orders):
    """Take (user string, amount long); give the new total of every user with new orders."""
    return hf.group_by(orders, "user").agg(orders=hf.count(), total=hf.sum("amount"), largest=hf.max("amount"))


def main(spark, folder, checkpoint):
    """Follow a folder of JSON files and show the totals."""
    orders = spark.readStream.schema("user string, amount long").json(folder)
    query = running_totals(orders).writeStream.format("console").option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    import sys

    from pyspark.sql import SparkSession

    main(SparkSession.builder.getOrCreate(), *sys.argv[1:])
