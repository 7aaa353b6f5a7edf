"""Providers whose stores live in a real state host, for running the kit through the client."""

import os
import uuid
from functools import cache

from holdfast import StateStoreProvider
from holdfast.executor.client import StateHostClient
from holdfast.executor.launch import ExecutorInfo
from holdfast.ids import StateStoreProviderId
from holdfast_files import HDFSBackedStateStoreProvider
from holdfast_memory import MemoryStateStoreProvider

FOLDER_KEY = "spark.holdfast.host.folder"


@cache
def client_of(folder):
    """This process's client; the host ends with the process that started the test run."""
    executor = ExecutorInfo("kit", "1", "localhost", os.getpid(), token="kit", coordinator=None)
    return StateHostClient(executor, {FOLDER_KEY: folder, "spark.holdfast.host.logLevel": "DEBUG"})


class HostedProvider(StateStoreProvider):
    """Does everything in the host; only the guard stays on this side."""

    behind: type[StateStoreProvider]
    fault_points = ()  # they are passed in the host, whose tests kill it there

    def init(self, store_id, key_schema, value_schema, key_index_ordinal, conf, fs_options, guard):
        self._id = StateStoreProviderId(store_id, uuid.UUID(bytes=os.urandom(16)))
        name = f"{self.behind.__module__}.{self.behind.__qualname__}"
        spark = {**conf.confs, **conf.backend_confs, "spark.holdfast.providerClass": name}
        spark["spark.sql.streaming.minBatchesToRetain"] = str(conf.min_versions_to_retain)
        spark["spark.sql.streaming.maxBatchesToRetainInMemory"] = str(conf.max_versions_to_retain_in_memory)
        self._schemas = (key_schema, value_schema, key_index_ordinal)
        self._conf, self._fs_options, self._guard = spark, fs_options, guard
        self._client = client_of(spark[FOLDER_KEY])

    @property
    def store_id(self):
        return self._id.store_id

    @property
    def supported_custom_metrics(self):
        return self.behind().supported_custom_metrics

    def get_store(self, version, identity=None):
        return self._client.open(
            self._id, *self._schemas, version, self._conf, self._fs_options, guard=self._guard, identity=identity
        )

    def get_read_store(self, version, identity=None):
        return self._client.open_for_reading(
            self._id, *self._schemas, version, self._conf, self._fs_options, identity=identity
        )

    def start_at(self, version):
        self._client.open(
            self._id, *self._schemas, version, self._conf, self._fs_options, guard=self._guard, start_empty=True
        ).abort()

    def do_maintenance(self):
        self._client.run_maintenance(self._id)

    def close(self):
        pass


class HostedMemory(HostedProvider):
    behind = MemoryStateStoreProvider
    capabilities = behind.capabilities


class HostedFiles(HostedProvider):
    behind = HDFSBackedStateStoreProvider
    capabilities = behind.capabilities
