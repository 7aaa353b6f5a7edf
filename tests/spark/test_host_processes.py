"""How many hosts an executor gets if nobody says."""

import pytest

from holdfast.spark.session import host_processes


@pytest.mark.parametrize(
    ("master", "conf", "processes"),
    [
        ("local", {}, 1),
        ("local[2]", {}, 2),
        ("local[3,5]", {}, 3),
        ("local[64]", {}, 4),
        ("local[4]", {"spark.task.cpus": "2"}, 2),
        ("local-cluster[2,3,1024]", {}, 3),
        ("yarn", {}, 1),
        ("yarn", {"spark.executor.cores": "3"}, 3),
        ("k8s://somewhere", {"spark.executor.cores": "1", "spark.task.cpus": "2"}, 1),
    ],
)
def test_as_many_as_tasks_at_once(master, conf, processes):
    assert host_processes(conf, master) == processes
