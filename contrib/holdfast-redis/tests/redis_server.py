"""A real Redis on loopback: started by fixtures, ended by the same fixtures, by process id."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import redis

PASSWORD = "correct horse"
READY_WITHIN = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end_with_parent():
    """Ask Linux for a signal when the parent is gone: no fixture ends anything when the test run itself is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # 1: PR_SET_PDEATHSIG


def command():
    """The program and its environment: the system's, or the one that fetch_redis.py unpacked."""
    if program := shutil.which("redis-server"):
        return program, dict(os.environ)
    unpacked = Path(os.environ.get("HOLDFAST_REDIS_DIR", "no such folder"))
    program = unpacked / "usr" / "bin" / "redis-server"
    assert program.exists(), "these tests need redis-server: install Debian's package, or run tests/fetch_redis.py"
    libraries = ":".join(str(path) for path in unpacked.glob("usr/lib/*-linux-gnu*"))
    return str(program), {**os.environ, "LD_LIBRARY_PATH": libraries}


class RedisServer:
    """One server; it can be killed and started again on the same port and data."""

    def __init__(self, folder, *options, tls=None):
        self.port = free_port()
        self._folder = folder
        self._options = options
        self._tls = tls
        self.process = None
        folder.mkdir()

    @property
    def url(self):
        return f"{'rediss' if self._tls else 'redis'}://127.0.0.1:{self.port}/0"

    @property
    def conf(self):
        """What a user would configure to reach it."""
        conf = {"spark.holdfast.redis.url": self.url, "spark.holdfast.redis.password": PASSWORD}
        return conf if self._tls is None else {**conf, "spark.holdfast.redis.tlsCaFile": str(self._tls.ca)}

    def client(self):
        tls = {} if self._tls is None else {"ssl_ca_certs": str(self._tls.ca)}
        return redis.Redis.from_url(self.url, password=PASSWORD, protocol=2, **tls)

    def start(self):
        program, environment = command()
        options = ["--bind", "127.0.0.1", "--dir", str(self._folder), "--requirepass", PASSWORD, "--save", ""]
        if self._tls is None:
            options += ["--port", str(self.port)]
        else:
            options += ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            options += ["--tls-cert-file", str(self._tls.certificate), "--tls-key-file", str(self._tls.key)]
            options += ["--tls-ca-cert-file", str(self._tls.ca)]
        with open(self._folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [program, *options, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=end_with_parent,
            )
        self._wait_until_ready()
        return self

    def _wait_until_ready(self):
        deadline = time.monotonic() + READY_WITHIN
        client = self.client()
        try:
            while True:
                try:
                    client.ping()
                except redis.RedisError:
                    log = (self._folder / "log").read_text()
                    assert self.process.poll() is None, log
                    assert time.monotonic() < deadline, log
                    time.sleep(0.02)
                else:
                    return
        finally:
            client.close()

    def kill(self):
        self.process.kill()
        self.process.wait(15)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
