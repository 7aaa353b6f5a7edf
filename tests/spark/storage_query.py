"""A driver that runs a streaming query on all there is, and writes down what each batch put out; a script.

    python storage_query.py JOB.json

The next driver has nothing of this one but what is in the checkpoint: neither the JVM nor the state host lives on.
"""

import json
import os
import sys
from pathlib import Path

from order_totals import read_orders, totals
from streaming_jobs import outputs


def session(conf):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    spark = session(job["conf"])
    put_out = []
    # Each folder holds what has arrived since the run before.
    for folder in job["arrivals"]:
        for file in sorted(Path(folder).iterdir()):
            file.rename(Path(job["orders"], file.name))
        frame = totals(read_orders(spark, job["orders"]), provider=job["provider"])
        put_out.append(outputs(frame, job["checkpoint"]))
    spark.stop()
    Path(job["put_out"]).write_text(json.dumps(put_out))


if __name__ == "__main__":
    main()
