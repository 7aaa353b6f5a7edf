"""What tests with Python workers need."""

import os
import sys

# Otherwise Spark starts its workers with the first python3 on the PATH, which need not have Holdfast.
os.environ["PYSPARK_PYTHON"] = sys.executable
