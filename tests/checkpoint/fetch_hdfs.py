"""Get Hadoop's NameNode and DataNode: run as a script, it puts their jars into ``$HOLDFAST_HDFS_JARS_DIR``.

The source package of PySpark 2.4.8 carries Hadoop 2.7 with its servers; later ones carry the clients only. Only its
jars are wanted, so nothing is built: pip asks its ``setup.py`` for metadata, which needs setuptools in this environment
and fails when pip isolates it.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

PACKAGE = "pyspark==2.4.8"
NEEDED = (
    "commons-",
    "guava-",
    "hadoop-annotations-",
    "hadoop-auth-",
    "hadoop-common-",
    "hadoop-hdfs-",
    "htrace-core-",
    "jackson-core-asl-",
    "jackson-mapper-asl-",
    "javax.servlet-api-",
    "javax.ws.rs-api-",
    "jetty-",
    "leveldbjni-all-",
    "log4j-",
    "netty-",
    "protobuf-java-",
    "slf4j-",
    "xercesImpl-",
    "xmlenc-",
)
"""How the names of the jars begin that the two servers load: 33 MB of 233."""


def fetch(target):
    """Fill the folder, unless it is full."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "--no-build-isolation", "--dest", scratch, PACKAGE], check=True)
        (archive,) = Path(scratch).glob("pyspark-*.tar.gz")
        jars = Path(scratch) / "jars"
        jars.mkdir()
        with tarfile.open(archive) as package:
            for member in package:
                path = PurePosixPath(member.name)
                if member.isfile() and path.parent.match("deps/jars") and path.name.startswith(NEEDED):
                    (jars / path.name).write_bytes(package.extractfile(member).read())
        jars.rename(target)


if __name__ == "__main__":
    fetch(Path(os.environ["HOLDFAST_HDFS_JARS_DIR"]))
