"""What the kit needs to know to make providers of the backend under test, here or in a child process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.conf import HOLDFAST_PROVIDER_CLASS, StateStoreConf
from holdfast.contract.provider import CommitGuard, StateStoreProvider, Unguarded
from holdfast.ids import DEFAULT_STORE_NAME, StateStoreId
from holdfast.plugins.registry import create_and_init, installed_providers

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_SCHEMA = "name string, part int"
VALUE_SCHEMA = "n long, text string"


@dataclass(frozen=True)
class Backend:
    """A backend, chosen and configured as a user would do it."""

    provider: str
    """What stands in ``providerClass``: a short name or a class name."""

    checkpoint_root: str
    """Folder or URL for the state of this test; empty and not shared with other tests."""

    conf: Mapping[str, str] = field(default_factory=dict)
    """Further configuration, in Spark's spelling."""

    fs_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the checkpoint's filesystem."""

    outlives_process: bool = True
    """Whether the checkpoint is still there when the process is gone; fsspec's ``memory://`` is not."""

    @property
    def provider_class(self) -> type[StateStoreProvider]:
        """The class that the name means."""
        return installed_providers().resolve(self.provider)

    def with_conf(self, **conf: str) -> Backend:
        """The same backend with more configuration; names are keys after ``spark.sql.streaming.``."""
        more = {"spark.sql.streaming." + key.replace("__", "."): value for key, value in conf.items()}
        return replace(self, conf={**self.conf, **more})

    def open(
        self,
        guard: CommitGuard | None = None,
        *,
        operator_id: int = 0,
        partition_id: int = 0,
        store_name: str = DEFAULT_STORE_NAME,
        key_schema: str = KEY_SCHEMA,
        value_schema: str = VALUE_SCHEMA,
        key_index_ordinal: int | None = None,
    ) -> StateStoreProvider:
        """A new provider, as a new run of the query would have it."""
        return create_and_init(
            StateStoreId(self.checkpoint_root, operator_id, partition_id, store_name),
            key_schema,
            value_schema,
            key_index_ordinal,
            StateStoreConf.parse({**self.conf, HOLDFAST_PROVIDER_CLASS: self.provider}),
            self.fs_options,
            guard or Unguarded(),
        )

    def to_json(self) -> str:
        """A form that a child process can be started with."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Backend:
        """What ``to_json`` wrote."""
        return cls(**json.loads(text))
