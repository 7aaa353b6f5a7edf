"""The life of a state host: from its configuration to the reason for its end."""

from __future__ import annotations

import faulthandler
import logging
import logging.handlers
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import TYPE_CHECKING, NoReturn

from holdfast.conf import StateStoreConf
from holdfast.errors import HoldfastError
from holdfast.executor.maintenance import Heartbeat, Maintenance, Periodic
from holdfast.executor.place import HostPlace
from holdfast.executor.protocol import HostConfig
from holdfast.executor.service import StateHost
from holdfast.executor.settings import HostSettings
from holdfast.executor.watched_process import WatchedProcess
from holdfast.plugins.versions import installed_software
from holdfast.rpc.coordinator_ref import StateStoreCoordinatorRef
from holdfast.rpc.messages import PROTOCOL, Hello, HostId
from holdfast.rpc.records import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.ids import StateStoreProviderId

log = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 0.25
"""How often a host looks whether it still has a reason to be."""

_COMMITS_MAY_TAKE_SECONDS = 60.0
"""How long an ending host waits for commits that are under way."""

_MAINTENANCE_MAY_TAKE_SECONDS = 10.0
"""The same for a snapshot that is being written; one that is left half-way does no harm."""


def run(config_bytes: bytes, ready: Callable[[], None]) -> NoReturn:
    """Be a state host until there is no reason to be one; ``ready`` is called when it listens."""
    config: HostConfig = decode(HostConfig, config_bytes)
    settings = HostSettings.parse(config.conf)
    place = HostPlace(Path(config.base), config.name)
    _log_to(place, settings)
    try:
        code = _live(config, settings, place, ready)
    except Exception as error:
        log.critical("Failed: %s", error, exc_info=not isinstance(error, HoldfastError))
        code = 1
    logging.shutdown()
    # Clients may hold exchanges open for as long as they like; nothing of theirs is left to lose.
    os._exit(code)


def _live(config: HostConfig, settings: HostSettings, place: HostPlace, ready: Callable[[], None]) -> int:
    lock = _occupy(place, settings.start_timeout)
    if lock is None:
        log.error("Another state host is still in %s; this one ends", place.folder)
        return 1
    place.sweep()
    place.socket.unlink(missing_ok=True)
    host_id = HostId(config.executor_id, config.host_name, str(os.getpid()))
    software = installed_software()
    coordinator = None
    if config.coordinator is not None:
        sender = f"state host {host_id.process} of executor {host_id.executor_id} on {host_id.host}"
        coordinator = StateStoreCoordinatorRef.for_executor(config.coordinator, Hello(PROTOCOL, software, sender))
    host = StateHost(f"grpc+unix://{place.socket}", config.token, host_id, coordinator, software=software)
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's interrupt is meant for the driver
    host.start()
    _say_hello(config, place)
    ready()

    heartbeat = None if coordinator is None else Heartbeat(coordinator, host_id, host.loaded)
    threads = _background(config, settings, host, host_id, coordinator, heartbeat)
    reason = _until_there_is_a_reason_to_end(config, settings, place, host, heartbeat, stop)
    host.refuse_new(reason)
    place.socket.unlink(missing_ok=True)  # who comes now starts another host, which waits for this one's lock
    host.finish_commits(_COMMITS_MAY_TAKE_SECONDS)
    for thread in threads:
        thread.stop(_MAINTENANCE_MAY_TAKE_SECONDS)
    host.unload_all()
    _leave(place)
    log.info("Ended: %s", reason)
    return 0


def _occupy(place: HostPlace, patience: float) -> int | None:
    deadline = monotonic() + patience
    while (lock := place.occupy()) is None and monotonic() < deadline:
        sleep(_LOOK_EVERY_SECONDS)
    return lock


def _leave(place: HostPlace) -> None:
    if not place.folder.exists():  # somebody cleared it away, and locking would bring it back
        return
    # Whoever is starting a host here keeps the folder; it is theirs to remove.
    with suppress(HoldfastError), place.starting(0):
        place.remove()


def _background(
    config: HostConfig,
    settings: HostSettings,
    host: StateHost,
    host_id: HostId,
    coordinator: StateStoreCoordinatorRef | None,
    heartbeat: Heartbeat | None,
) -> list[Periodic]:
    def is_active(provider_id: StateStoreProviderId) -> bool:
        return coordinator is None or coordinator.verify_if_instance_active(provider_id, host_id.executor_id)

    interval = StateStoreConf.parse(config.conf).maintenance_interval
    maintenance = Periodic("state-store-maintenance-task", interval, Maintenance(host.loaded, is_active).run)
    threads = [maintenance]
    if heartbeat is not None:

        def beat() -> None:
            if heartbeat.beat():
                maintenance.wake()

        threads.append(Periodic("heartbeat", settings.heartbeat_interval, beat))
    for thread in threads:
        thread.start()
    return threads


def _until_there_is_a_reason_to_end(
    config: HostConfig,
    settings: HostSettings,
    place: HostPlace,
    host: StateHost,
    heartbeat: Heartbeat | None,
    stop: Event,
) -> str:
    executor = None if config.executor_pid is None else WatchedProcess(config.executor_pid)
    busy_at = monotonic()
    while not stop.wait(_LOOK_EVERY_SECONDS):
        if executor is not None and executor.is_gone():
            return f"its executor (process {executor.pid}) is gone"
        if heartbeat is not None and heartbeat.silent_for() > settings.driver_timeout:
            return f"the driver has not answered for {heartbeat.silent_for():.0f} s"
        if not place.socket.exists():
            return f"its socket {place.socket} was removed, so that no task can find it"
        if not host.is_idle:
            busy_at = monotonic()
        elif monotonic() - busy_at > settings.idle_timeout:
            reason = f"it had nothing to do for {settings.idle_timeout:g} s"
            if host.refuse_new(reason, if_idle=True):
                return reason
    return "it was told to (SIGTERM)"


class _HostLog(logging.handlers.RotatingFileHandler):
    """A rotating log that takes standard error along: what the interpreter says when it crashes is in the newest."""

    def doRollover(self) -> None:  # noqa: N802 - logging's name
        super().doRollover()
        with open(self.baseFilename, "ab") as newest:
            for descriptor in (1, 2):
                os.dup2(newest.fileno(), descriptor)


def _log_to(place: HostPlace, settings: HostSettings) -> None:
    place.prepare()
    handler = _HostLog(place.log, maxBytes=settings.log_size, backupCount=settings.log_files, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level, handlers=[handler])
    faulthandler.enable(sys.stderr)  # which goes to the same file


def _say_hello(config: HostConfig, place: HostPlace) -> None:
    driver = "no driver" if config.coordinator is None else f"driver at {config.coordinator}"
    log.info(
        "State host of executor %s on %s (process %s) listens on %s, %s, log %s",
        config.executor_id, config.host_name, config.executor_pid, place.socket, driver, place.log,
    )  # fmt: skip
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        log.warning(
            "This process inherited an address-space limit of %d MB (spark.executor.pyspark.memory sets one);"
            " state that does not fit will fail with 'out of memory'",
            limit >> 20,
        )
