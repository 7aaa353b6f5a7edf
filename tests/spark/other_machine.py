"""A cluster whose executor says that it runs on another machine; a script.

To the JVMs the other machine's name is this one's address, by a table of hosts of their own; to everybody else, and so
to Holdfast, it is no address of this machine.
"""

import json
import os
import socket
import sys
from pathlib import Path

from order_totals import failure_of, orders, state_of, totals
from streaming_jobs import outputs

NAME = "another-machine"


def cluster():
    """Start a master and a worker in the driver's JVM, which have the other machine's name; returns their address."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    deploy = SparkContext._jvm.org.apache.spark.deploy
    return deploy.LocalSparkCluster(1, 1, 1024, SparkContext._jvm.org.apache.spark.SparkConf()).start()[0]


def main():
    from pyspark.sql import SparkSession

    folder = Path(sys.argv[1])
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {NAME} {socket.gethostname()}\n")
    java_option = f"-Djdk.net.hosts.file={hosts}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_HOSTNAME"] = NAME
    os.environ["PYSPARK_SUBMIT_ARGS"] = f'--driver-java-options "{java_option}" pyspark-shell'
    spark = (
        SparkSession.builder.master(cluster())
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", java_option)
        .config("spark.holdfast.coordinator.bindAddress", "127.0.0.1")
        .config("spark.holdfast.host.folder", str(folder / "h"))
        .getOrCreate()
    )
    source = orders(spark, folder / "orders")
    source.add(("u0", 1), ("u1", 10))
    refused = failure_of(totals(source.stream()), folder / "c")
    spark.conf.set("spark.holdfast.operator.sharedFilesystem", "true")
    shared = outputs(totals(source.stream()), folder / "c")
    state = sorted((*key, *value) for key, value in state_of(folder / "c").items())
    spark.stop()
    print(json.dumps({"refused": refused, "shared": shared, "state": state}))


if __name__ == "__main__":
    main()
