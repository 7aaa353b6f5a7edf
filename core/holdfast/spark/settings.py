"""The settings of operators and of the driver's coordinator."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.conf import HOLDFAST_PREFIX
from holdfast.errors import InvalidSetting
from holdfast.settings import ByteSize, Settings, setting


@dataclass(frozen=True, kw_only=True)
class OperatorSettings(Settings):
    """How tasks work, and what a checkpoint may be."""

    prefix: ClassVar[str] = HOLDFAST_PREFIX + "operator."

    memory_limit: ByteSize = setting(
        ByteSize(256 * 1024**2),
        "Memory for the rows of one partition of a batch; beyond it they go to disk.",
        minimum=1024,
    )
    spill_dir: str | None = setting(
        None, "Folder for rows that do not fit into memory (default: Spark's local folder)."
    )
    shared_filesystem: bool = setting(
        False, "Whether a local path is the same folder on all machines, so that a checkpoint may be there."
    )
    fs_options: str | None = setting(
        None, "fsspec's options for the checkpoint's filesystem, as JSON; they win over spark.hadoop.*."
    )

    def given_fs_options(self) -> dict[str, Any]:
        """The options, parsed."""
        if self.fs_options is None:
            return {}
        try:
            options = json.loads(self.fs_options)
        except ValueError:
            options = None
        if not isinstance(options, dict):
            # Not shown: they may hold secrets.
            raise InvalidSetting(f'{self.prefix}fsOptions is not a JSON object such as {{"anon": true}}')
        return options


@dataclass(frozen=True, kw_only=True)
class CoordinatorSettings(Settings):
    """Where the coordinator listens."""

    prefix: ClassVar[str] = HOLDFAST_PREFIX + "coordinator."

    port: int = setting(0, "Port of the coordinator on the driver; 0 is any.", minimum=0)
    bind_address: str | None = setting(
        None, "Address that the coordinator listens on (default: 127.0.0.1 in local mode, else all)."
    )
    tls_certificate: str | None = setting(None, "PEM file with the coordinator's certificate; turns on TLS.")
    tls_key: str | None = setting(None, "PEM file with the key of that certificate.")
    tls_root: str | None = setting(None, "PEM file, on every executor, with the certificates to trust.")
