"""A driver, executors and a query for tests of the state host: real processes, real sockets, no Spark."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from holdfast.conf import StateStoreConf
from holdfast.contract.provider import Unguarded
from holdfast.driver.coordinator import StateStoreCoordinator
from holdfast.driver.endpoint import CoordinatorEndpoint
from holdfast.executor.client import StateHostClient
from holdfast.executor.launch import ExecutorInfo
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.plugins.registry import create_and_init
from holdfast.plugins.versions import installed_software
from holdfast.rpc.messages import Attempt

KEY = pa.schema([("k", pa.int64())])
VALUE = pa.schema([("v", pa.int64())])
PATIENCE = 60.0


def row(value):
    return str(value).encode().ljust(16)


def eventually(condition, what, patience=PATIENCE):
    """Wait until ``condition()`` is true, and return what it gave."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {patience:g} s: {what}"
        time.sleep(0.02)
    return found


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def host_processes(folder):
    """The state hosts whose places are in ``folder``: it is their working directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.joinpath("cwd").readlink() == Path(folder) and is_alive(int(process.name)):
                found.append(int(process.name))
        except OSError:
            continue
    return found


class Driver:
    """A coordinator with its endpoint, in this process."""

    def __init__(self, port=0):
        self.coordinator = StateStoreCoordinator(time.monotonic, report_interval=2.0)
        self._endpoint = CoordinatorEndpoint(
            self.coordinator,
            host="127.0.0.1",
            bind="127.0.0.1",
            port=port,
            software=installed_software(),
            tidy_interval=0.5,
        )
        self.address = self._endpoint.start()

    @property
    def port(self):
        return int(self.address.location.rpartition(":")[2])

    def stop(self):
        self._endpoint.stop()


class Executor:
    """An executor of the machine; its own process does nothing but be there."""

    def __init__(self, executor_id, driver, conf):
        self._process = subprocess.Popen(["sleep", "1000"])
        self.conf = conf
        self.info = ExecutorInfo(
            identity=f"blockmgr-{executor_id}",
            executor_id=executor_id,
            host_name="127.0.0.1",
            pid=self._process.pid,
            token="secret",
            coordinator=driver.address,
        )
        self._clients = []

    def client(self, **conf):
        """A new task's client; keywords are settings of the host that it may start."""
        client = StateHostClient(self.info, {**self.conf, **host_conf(**conf)})
        self._clients.append(client)
        return client

    def start_child(self, query, version):
        """A task in a process of its own, which writes a line when it has the store open."""
        query.attempts += 1
        info = asdict(self.info)
        arguments = {
            "coordinator": info.pop("coordinator"),
            "executor": info,
            "conf": self.conf,
            "root": query.root,
            "query_conf": query.conf,
            "version": version,
            "attempt": query.attempts,
        }
        script = Path(__file__).with_name("client_child.py")
        return subprocess.Popen(
            [sys.executable, script, json.dumps(arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @contextmanager
    def children(self, query, version, number=1):
        """Tasks that have the store open, all started at once; they are killed at the end."""
        with ExitStack() as stack:
            started = []
            for _ in range(number):
                started.append(stack.enter_context(self.start_child(query, version)))
                stack.callback(started[-1].kill)
            for child in started:
                assert child.stdout.readline() == "open\n"
            yield started

    def place(self, process=0):
        return self.info.place(process, self.conf["spark.holdfast.host.folder"])

    def host_pid(self, process=0):
        """The process that listens on the socket now."""
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.connect(str(self.place(process).socket))
            pid, _, _ = struct.unpack("3i", knocking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid

    def log(self, process=0):
        return self.place(process).log.read_text()

    def kill_host(self):
        pid = self.host_pid()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_alive(pid), "the host is gone")
        return pid

    def end(self):
        self._process.kill()
        self._process.wait()

    def close(self):
        for client in self._clients:
            client.close()
        self.end()


def host_conf(**settings):
    """``driver_timeout="2s"`` and so on, as Spark's keys."""
    words = {key: key.split("_") for key in settings}
    return {
        f"spark.holdfast.host.{first}{''.join(word.capitalize() for word in rest)}": str(settings[key])
        for key, (first, *rest) in words.items()
    }


class Query:
    """A query with one operator, whose tasks a test runs by hand."""

    def __init__(self, root, conf, run=1):
        self.root = str(root)
        self.conf = conf
        self.run = run
        self.attempts = 0

    def restarted(self):
        """The same query in its next run."""
        again = Query(self.root, self.conf, self.run + 1)
        again.attempts = self.attempts
        return again

    def provider_id(self, partition=0):
        return StateStoreProviderId(StateStoreId(self.root, 1000, partition), UUID(int=self.run))

    def open(self, client, version, partition=0, attempt=None):
        """A new attempt of the task opens its store, unless ``attempt`` is given."""
        if attempt is None:
            self.attempts += 1
            attempt = self.attempts
        return client.open(
            self.provider_id(partition), KEY, VALUE, None, version, self.conf, {}, attempt=Attempt(1, 0, attempt)
        )

    def commit(self, client, version, changes, partition=0):
        """A whole attempt."""
        with self.open(client, version, partition) as store:
            put(store, changes)
            return store.commit()

    def read(self, client, version, partition=0):
        with client.open_for_reading(self.provider_id(partition), KEY, VALUE, None, version, self.conf, {}) as store:
            return dict(store.iterator())

    def stored(self, version, partition=0):
        """What the checkpoint has, without any host."""
        store_id = self.provider_id(partition).store_id
        provider = create_and_init(store_id, KEY, VALUE, None, StateStoreConf.parse({}), {}, Unguarded())
        with provider.get_read_store(version) as store:
            return dict(store.iterator())


def put(store, changes):
    store.put_many([row(key) for key in changes], [row(value) for value in changes.values()])


def rows(**values):
    """What a store holds after ``put`` of these."""
    return {row(key): row(value) for key, value in values.items()}
