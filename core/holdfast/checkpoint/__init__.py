"""The checkpoint log: Spark's own state files, written and read on any filesystem."""
