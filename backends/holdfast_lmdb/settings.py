"""The settings of this backend."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast import ByteSize, Seconds, Settings, setting


@dataclass(frozen=True, kw_only=True)
class LmdbSettings(Settings):
    """Where the local environments are, and how large they and their overlays become."""

    prefix: ClassVar[str] = "spark.holdfast.lmdb."

    local_dir: str | None = setting(
        None,
        "Folder on a local disk for the environments; outside of Spark's own folders they outlive the application.",
    )
    max_size: ByteSize = setting(
        ByteSize(64 << 30), "How large the environment of one store may become; it grows as needed.", minimum=1 << 20
    )
    overlay_size: ByteSize = setting(
        ByteSize(64 << 20), "Memory for recent changes of one store before they are written to LMDB together."
    )
    keep_unused: Seconds = setting(
        Seconds(86400.0), "How long an environment that no store uses is kept for its return."
    )

    def folder(self) -> Path:
        """The folder for all environments of this user on this machine."""
        if self.local_dir is not None:
            return Path(self.local_dir)
        # Spark tells its executors' Python processes, and YARN its containers, where their local folders are.
        named = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("LOCAL_DIRS") or tempfile.gettempdir()
        return Path(named.split(",")[0]) / f"holdfast-lmdb-{os.geteuid()}"
