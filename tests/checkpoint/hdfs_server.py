"""A real HDFS on loopback for tests: started by a fixture, ended by the same fixture, by process id."""

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from servers import READY_WITHIN, free_port, running

HDFS = [
    pytest.mark.hdfs,
    pytest.mark.skipif(os.environ.get("HOLDFAST_TEST_HDFS") != "1", reason="HOLDFAST_TEST_HDFS is not 1"),
]
"""The marks of a test that needs it."""

LOG4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c: %m%n
"""


@dataclass(frozen=True)
class Hdfs:
    """A running NameNode and its only DataNode."""

    port: int

    def url(self, *names):
        return "/".join((f"hdfs://127.0.0.1:{self.port}", *names))


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory):
    """HDFS, by Hadoop's own servers. Their jars come from fetch_hdfs.py."""
    jars = Path(os.environ.get("HOLDFAST_HDFS_JARS_DIR", ""))
    if not (jars.name and jars.is_dir()):
        pytest.fail("HOLDFAST_HDFS_JARS_DIR is no folder; run tests/checkpoint/fetch_hdfs.py")
    folder = tmp_path_factory.mktemp("hdfs")
    port, web = free_port(), free_port()
    configure(folder, port, web)
    java = shutil.which(
        "java", path=os.path.join(os.environ["JAVA_HOME"], "bin") if "JAVA_HOME" in os.environ else None
    )
    command = [str(java), "-Xmx256m", "-XX:+UseSerialGC", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    command += ["-Djava.net.preferIPv4Stack=true", "-cp", f"{folder / 'conf'}:{jars}/*"]
    name_node = [*command, "org.apache.hadoop.hdfs.server.namenode.NameNode"]
    data_node = [*command, "org.apache.hadoop.hdfs.server.datanode.DataNode"]
    done = subprocess.run([*name_node, "-format", "-nonInteractive"], capture_output=True, timeout=READY_WITHIN)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    with (
        running(name_node, f"127.0.0.1:{web}/jmx", folder / "namenode.log", grace=5),
        running(data_node, f"127.0.0.1:{web}/jmx", folder / "datanode.log", grace=5),
    ):
        wait_for_data_node(web, folder / "datanode.log")
        yield Hdfs(port)


def configure(folder, port, web):
    """Write what the two servers read: everything on loopback, one copy of each block."""
    settings = {
        "dfs.blocksize": 2**20,  # so that a large file is several blocks
        "dfs.datanode.address": "127.0.0.1:0",
        "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.datanode.http.address": "127.0.0.1:0",
        "dfs.datanode.ipc.address": "127.0.0.1:0",
        "dfs.namenode.fs-limits.min-block-size": 2**20,
        "dfs.namenode.http-address": f"127.0.0.1:{web}",
        "dfs.namenode.name.dir": (folder / "name").as_uri(),
        "dfs.replication": 1,
        "dfs.webhdfs.enabled": "false",  # its classes are not in the package
        "fs.defaultFS": f"hdfs://127.0.0.1:{port}",
        "hadoop.tmp.dir": folder / "tmp",
    }
    lines = [
        f"<property><name>{name}</name><value>{escape(str(value))}</value></property>"
        for name, value in settings.items()
    ]
    text = "\n".join(["<configuration>", *lines, "</configuration>"])
    conf = folder / "conf"
    for site in ("hdfs", "datanode"):  # the servers want the folders of their web pages, and no page
        (conf / "webapps" / site).mkdir(parents=True)
    (conf / "webapps" / "static").mkdir()
    (conf / "core-site.xml").write_text(text)
    (conf / "hdfs-site.xml").write_text(text)
    (conf / "log4j.properties").write_text(LOG4J)


def wait_for_data_node(web, log):
    """Wait until the NameNode can store."""
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(f"127.0.0.1:{web}", timeout=5)
        with contextlib.suppress(OSError, ValueError, LookupError), contextlib.closing(connection):
            connection.request("GET", "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")
            (state,) = json.loads(connection.getresponse().read())["beans"]
            if state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational":
                return
        time.sleep(0.1)
    pytest.fail(f"the DataNode did not start: {Path(log).read_text(errors='replace')[-2000:]}")
