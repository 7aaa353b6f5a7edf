"""Fixtures for the tests of the checkpoint log: one server of each kind serves them all."""

from hdfs_server import hdfs_server
from places import folder, place, proxied, remote
from servers import gcs_server, moto_server, seaweedfs_server

__all__ = ["folder", "gcs_server", "hdfs_server", "moto_server", "place", "proxied", "remote", "seaweedfs_server"]
