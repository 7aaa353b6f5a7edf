"""A real streaming query, stopped and started again, on every storage that a checkpoint may lie on.

There are no connectors of Hadoop's for object stores here, so Hadoop's view filesystem takes their place: for the logs
of Spark itself, ``s3a://bucket/…`` is a local folder. The state goes to the object store, by fsspec.
"""

import json
import random
import subprocess
import sys
from dataclasses import dataclass, field

import pyspark
import pytest
import storage_query
from order_totals import orders, state_of
from servers import BUCKET, SEAWEEDFS, SERVERS

from holdfast.checkpoint.storage import Folder

pytestmark = pytest.mark.spark

MEMORY_HOST = "holdfast-tests-in-memory"

# Its default asks for classes of the connectors by name.
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.{}FileSystemBasedCheckpointFileManager".format(
    "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
)


@dataclass(frozen=True)
class Place:
    """Where a checkpoint lies, and what Spark and fsspec need to get there."""

    checkpoint: str
    conf: dict = field(default_factory=dict)
    fs_options: dict = field(default_factory=dict, repr=False)

    @property
    def is_remote(self):
        return "://" in self.checkpoint

    def state(self):
        """The state by key, as the command line shows it."""
        options = [part for name, value in self.fs_options.items() for part in ("--fs-option", option(name, value))]
        # Where only the state is there, without the logs of Spark, it has to be named.
        return state_of(f"{self.checkpoint}/state", *options)

    def deltas(self):
        """The versions in the storage, by partition."""
        state = Folder.open(f"{self.checkpoint}/state/1000", self.fs_options)
        names = {partition: state.child(partition).list() for partition in ("0", "1")}
        return {
            partition: sorted(int(name.removesuffix(".delta")) for name in found if name.endswith(".delta"))
            for partition, found in names.items()
        }


def option(name, value):
    return f"{name}={value}" if isinstance(value, str) else f"{name}:={json.dumps(value)}"


def by_hadoop_keys(server):
    """Settings as users of Hadoop's connectors have them."""
    if server.scheme == "gs":
        return {
            "spark.hadoop.fs.gs.auth.type": "UNAUTHENTICATED",
            "spark.hadoop.fs.gs.project.id": server.options["project"],
            "spark.hadoop.fs.gs.storage.root.url": server.endpoint + "/",
        }
    return {
        "spark.hadoop.fs.s3a.access.key": server.options["key"],
        "spark.hadoop.fs.s3a.secret.key": server.options["secret"],
        "spark.hadoop.fs.s3a.endpoint": server.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def by_fs_options(server):
    """Settings as fsspec has them."""
    return {"spark.holdfast.operator.fsOptions": json.dumps(server.options)}


def logs_in(folder, scheme, authority):
    """Let Spark have its own files in a local folder."""
    folder.mkdir()
    return {
        f"spark.hadoop.fs.{scheme}.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        f"spark.hadoop.fs.viewfs.mounttable.{authority}.linkMergeSlash": folder.as_uri(),
        "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    }


def place_on(storage, request, tmp_path, settings):
    """An empty checkpoint on a storage."""
    if storage == "local":
        return Place(str(tmp_path / "checkpoint"))
    if storage == "memory":
        return Place(f"memory://{MEMORY_HOST}/checkpoint", logs_in(tmp_path / "logs", "memory", MEMORY_HOST))
    server = request.getfixturevalue(SERVERS[storage])
    conf = {**settings(server), **logs_in(tmp_path / "logs", server.scheme, BUCKET)}
    return Place(server.url(tmp_path.parent.name, tmp_path.name), conf, server.options)


class Shop:
    """Orders arrive, and drivers come and go; counts for itself."""

    def __init__(self, tmp_path, place):
        self.folder = tmp_path
        self._place = place
        self._random = random.Random(6)
        self._arrivals = 0
        self._file = 0
        self.totals = {}
        (tmp_path / "orders").mkdir()

    def arrive(self, batches):
        """Let orders arrive; returns their folder, and what the query should put out for each batch."""
        folder = self.folder / f"arrival {self._arrivals}"
        self._arrivals += 1
        source = orders(None, folder, first=self._file)
        self._file += batches
        expected = []
        for _ in range(batches):
            rows = [(f"user {self._random.randrange(9)}", self._random.randrange(-50, 100)) for _ in range(20)]
            source.add(*rows)
            for user, amount in rows:
                n, total = self.totals.get(user, (0, 0))
                self.totals[user] = (n + 1, total + amount)
            expected.append([[user, *self.totals[user]] for user in sorted({user for user, _ in rows})])
        return str(folder), expected

    def drive(self, provider, *arrivals):
        """Run one driver, which runs the query anew for each arrival; returns what it put out."""
        job, put_out = self.folder / "job.json", self.folder / "put_out.json"
        put_out.unlink(missing_ok=True)
        described = {
            "arrivals": arrivals,
            "checkpoint": self._place.checkpoint,
            "conf": self._place.conf,
            "orders": str(self.folder / "orders"),
            "provider": provider,
            "put_out": str(put_out),
        }
        job.write_text(json.dumps(described))
        command = [sys.executable, storage_query.__file__, str(job)]
        ended = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stderr[-5000:]
        return json.loads(put_out.read_text())


def go_on_through(shop, place, *providers):
    """Run the query with one provider after another, each in a driver of its own, and compare everything."""
    version = 0
    for provider in providers:
        folder, expected = shop.arrive(batches=3)
        assert shop.drive(provider, folder) == [expected]
        assert place.state() == {(user,): total for user, total in shop.totals.items()}
        version += 3
        assert place.deltas() == {partition: [*range(1, version + 1)] for partition in ("0", "1")}
    if place.is_remote:
        assert not [*shop.folder.rglob("*.delta")], "the state is nowhere on this disk"


@pytest.mark.parametrize("storage", ["local", "s3", "gcs", SEAWEEDFS])
def test_files(request, tmp_path, storage):
    place = place_on(storage, request, tmp_path, by_hadoop_keys)
    go_on_through(Shop(tmp_path, place), place, "files", "files")


def test_files_memory(request, tmp_path):
    """The memory filesystem is that of the state host's process, so the query has to start again under one driver."""
    place = place_on("memory", request, tmp_path, by_hadoop_keys)
    shop = Shop(tmp_path, place)
    (first, put_out), (second, put_out_then) = shop.arrive(batches=3), shop.arrive(batches=3)
    assert shop.drive("files", first, second) == [put_out, put_out_then]
    assert not [*tmp_path.rglob("*.delta")], "the state is nowhere on this disk"


def test_lmdb_local_and_files_in_turn(request, tmp_path):
    place = place_on("local", request, tmp_path, by_fs_options)
    go_on_through(Shop(tmp_path, place), place, "files", "lmdb", "lmdb", "files")


def test_lmdb_s3(request, tmp_path):
    place = place_on("s3", request, tmp_path, by_fs_options)
    go_on_through(Shop(tmp_path, place), place, "lmdb", "lmdb")
