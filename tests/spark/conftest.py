"""What tests with Python workers need."""

import os
import sys

from servers import gcs_server, moto_server, seaweedfs_server

__all__ = ["gcs_server", "moto_server", "seaweedfs_server"]

# Otherwise Spark starts its workers with the first python3 on the PATH, which need not have Holdfast.
os.environ["PYSPARK_PYTHON"] = sys.executable
