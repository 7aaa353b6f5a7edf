"""A real streaming query on SQLite, restarted, and refused to a backend that keeps its state elsewhere."""

import pytest
from streaming import add_orders, totals


def test_a_query_and_its_restarts(spark, tmp_path):
    databases = tmp_path / "databases"
    spark.conf.set("spark.holdfast.sqlite.directory", str(databases))
    orders, checkpoint = tmp_path / "orders", tmp_path / "checkpoint"
    try:
        add_orders(orders, "0.json", ("ann", 1), ("bob", 10), ("ann", 2))
        assert totals(spark, orders, checkpoint, "sqlite") == [[("ann", 2, 3), ("bob", 1, 10)]]
        assert list(databases.rglob("*.sqlite*"))
        add_orders(orders, "1.json", ("bob", 20), ("cid", 100))
        assert totals(spark, orders, checkpoint, "sqlite") == [[("bob", 2, 30), ("cid", 1, 100)]]
        add_orders(orders, "2.json", ("ann", 4), ("cid", -100))
        with pytest.raises(Exception, match="is of kind LOG, which keeps it elsewhere"):
            totals(spark, orders, checkpoint, "files")
        assert totals(spark, orders, checkpoint, "sqlite") == [[("ann", 3, 7), ("cid", 2, 0)]]
        assert not list(checkpoint.rglob("*.delta"))
    finally:
        spark.conf.unset("spark.holdfast.sqlite.directory")
