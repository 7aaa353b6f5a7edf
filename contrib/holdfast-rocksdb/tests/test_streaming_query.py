"""A real streaming query on RocksDB, restarted, and taken over by another backend."""

from streaming import add_orders, totals


def test_a_query_and_its_restarts(spark, tmp_path):
    local = tmp_path / "local"
    spark.conf.set("spark.holdfast.rocksdb.localDir", str(local))
    orders, checkpoint = tmp_path / "orders", tmp_path / "checkpoint"
    try:
        add_orders(orders, "0.json", ("ann", 1), ("bob", 10), ("ann", 2))
        assert totals(spark, orders, checkpoint, "rocksdb") == [[("ann", 2, 3), ("bob", 1, 10)]]
        assert list(local.rglob("*.rocksdb"))
        add_orders(orders, "1.json", ("bob", 20), ("cid", 100))
        assert totals(spark, orders, checkpoint, "rocksdb") == [[("bob", 2, 30), ("cid", 1, 100)]]
        # The log is that of every backend over it.
        add_orders(orders, "2.json", ("ann", 4), ("cid", -100))
        assert totals(spark, orders, checkpoint, "files") == [[("ann", 3, 7), ("cid", 2, 0)]]
        add_orders(orders, "3.json", ("ann", 1))
        assert totals(spark, orders, checkpoint, "rocksdb") == [[("ann", 4, 8)]]
    finally:
        spark.conf.unset("spark.holdfast.rocksdb.localDir")
