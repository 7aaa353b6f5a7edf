"""Finding the state host of an executor, and starting it when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, Unavailable
from holdfast.executor.place import HostPlace
from holdfast.executor.protocol import HostConfig
from holdfast.executor.settings import HostSettings
from holdfast.plugins.versions import installed_software
from holdfast.rpc.address import Address
from holdfast.rpc.client import RpcClient
from holdfast.rpc.messages import PROTOCOL, Hello
from holdfast.rpc.records import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

_KNOCK_AGAIN_SECONDS = 0.05

_TAIL_BYTES = 2000
"""How much of a log is shown when a host does not come up."""


@dataclass(frozen=True)
class ExecutorInfo:
    """Which executor this process is part of, and whom it belongs to."""

    identity: str
    """Tells executors of one machine apart."""

    executor_id: str
    host_name: str
    pid: int | None
    """The executor's own process; its hosts end with it."""

    token: str
    """Shared by the processes of one application."""

    coordinator: Address | None

    def place(self, process: int, base: str | None) -> HostPlace:
        """Where the ``process``-th host of this executor lives.

        It goes by the secrets too: a driver that was started anew, or another application, has hosts of its own.
        """
        driver = ("", "") if self.coordinator is None else (self.coordinator.location, self.coordinator.token)
        return HostPlace.of("\0".join((*driver, self.token, self.identity)), process, base)


def connect(executor: ExecutorInfo, process: int, conf: Mapping[str, str]) -> tuple[HostPlace, RpcClient]:
    """A connection to the executor's ``process``-th host, which is started if need be."""
    settings = HostSettings.parse(conf)
    place = executor.place(process, settings.folder)
    hello = Hello(PROTOCOL, installed_software(), f"process {os.getpid()} of executor {executor.executor_id}")

    def knock() -> RpcClient | None:
        if not place.socket.exists():
            return None
        client = RpcClient(
            Address(f"grpc+unix://{place.socket}", executor.token),
            hello=hello,
            timeout=settings.request_timeout,
            retries=0,
        )
        try:
            client.ask(hello, settings.start_timeout)
        except Unavailable:  # left behind by a host that was killed
            client.close(0)
            return None
        except HoldfastError as error:
            client.close(0)
            raise type(error)(f"{error} (log of the state host: {place.log})") from error
        return client

    place.prepare()  # before anything is sent there: the token is not for whoever else could listen
    found = knock()
    if found is None:
        with place.starting(settings.start_timeout):
            deadline = monotonic() + settings.start_timeout
            while (found := knock()) is None:
                if monotonic() > deadline:
                    raise Unavailable(
                        f"the state host in {place.folder} does not answer (spark.holdfast.host.startTimeout,"
                        f" {settings.start_timeout:g} s); its log is {place.log}: {_tail(place)}"
                    )
                # One that lives but does not listen any more is about to end; one whose queue is full will answer.
                if place.is_free():
                    _start(place, executor, conf, settings)
                else:
                    sleep(_KNOCK_AGAIN_SECONDS)
    return place, found


def _start(place: HostPlace, executor: ExecutorInfo, conf: Mapping[str, str], settings: HostSettings) -> None:
    config = HostConfig(
        base=str(place.base),
        name=place.name,
        token=executor.token,
        executor_id=executor.executor_id,
        host_name=executor.host_name,
        executor_pid=executor.pid,
        coordinator=executor.coordinator,
        conf=dict(conf),
    )
    # What a task can import its host can import too: Spark adds files and archives to the path of its workers.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with open(place.log, "ab") as output:
        starter = subprocess.Popen(
            [sys.executable, "-m", "holdfast.executor.host"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=place.base,
            env=environment,
            start_new_session=True,  # it outlives the worker, and signals to the worker's group are not for it
        )
    try:
        starter.communicate(encode(HostConfig, config), timeout=settings.start_timeout)
    except subprocess.TimeoutExpired:
        starter.kill()
        starter.wait()
        raise Unavailable(
            f"no state host came up within {settings.start_timeout:g} s (spark.holdfast.host.startTimeout);"
            f" its log is {place.log}: {_tail(place)}"
        ) from None
    if starter.returncode:
        raise Unavailable(f"the state host could not be started; its log is {place.log}: {_tail(place)}")


def _tail(place: HostPlace) -> str:
    try:
        with open(place.log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip() or "empty"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
