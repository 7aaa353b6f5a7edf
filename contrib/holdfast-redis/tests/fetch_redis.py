"""Get a redis-server: run as a script, it unpacks Debian's packages into ``$HOLDFAST_REDIS_DIR``.

Nothing is installed and no rights are needed. A machine that has redis-server already is left as it is.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PACKAGES = ("redis-server", "redis-tools", "libatomic1", "libjemalloc2", "liblzf1")


def fetch(target):
    """Fill the folder, unless it is full or not needed."""
    if shutil.which("redis-server") or target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        subprocess.run(["apt-get", "download", "--quiet", *PACKAGES], cwd=scratch, check=True)
        unpacked = Path(scratch, "unpacked")
        for package in Path(scratch).glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", str(package), str(unpacked)], check=True)
        unpacked.rename(target)


if __name__ == "__main__":
    fetch(Path(os.environ["HOLDFAST_REDIS_DIR"]))
