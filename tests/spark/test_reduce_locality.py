"""A setting of Spark's that defeats placement is pointed out."""

import pytest

from holdfast.spark.session import REDUCE_LOCALITY, warn_of_reduce_locality


@pytest.mark.parametrize(
    ("master", "conf", "warned"),
    [
        ("yarn", {}, True),
        ("local-cluster[2,1,1024]", {}, True),
        ("k8s://somewhere", {REDUCE_LOCALITY: "true"}, True),
        ("yarn", {REDUCE_LOCALITY: "false"}, False),
        ("local", {}, False),
        ("local[4]", {}, False),
    ],
)
def test_warning(caplog, master, conf, warned):
    warn_of_reduce_locality(conf, master)
    assert [REDUCE_LOCALITY in record.getMessage() for record in caplog.records] == [True] * warned
