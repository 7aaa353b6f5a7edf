"""What the driver runs beside a SparkContext: the coordinator, and a look now and then at which queries still run."""

from __future__ import annotations

import logging
import os
import re
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from holdfast.driver.awake_clock import AwakeClock
from holdfast.driver.coordinator import StateStoreCoordinator
from holdfast.driver.endpoint import CoordinatorEndpoint
from holdfast.driver.snapshot_lag import SnapshotLagSettings
from holdfast.errors import InvalidRequest, InvalidSetting
from holdfast.executor.settings import HostSettings
from holdfast.plugins.versions import installed_software
from holdfast.rpc.tls import Tls
from holdfast.spark.claims import ClaimOperator, Claims
from holdfast.spark.placement import Placement, has_several_executors
from holdfast.spark.settings import CoordinatorSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from holdfast.rpc.address import Address

log = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS: Final = 1.0

REDUCE_LOCALITY: Final = "spark.shuffle.reduceLocality.enabled"
"""Read by Spark once, when a context starts."""

PROCESSES: Final = HostSettings.prefix + "processes"
_MOST_PROCESSES: Final = 4

_lock = Lock()
_drivers: dict[tuple[int, str], Driver] = {}


class Driver:
    """The driver's part of Holdfast for one SparkContext."""

    def __init__(self, session: SparkSession) -> None:
        conf = spark_conf(session)
        context = session.sparkContext
        refuse_speculation(conf)
        warn_of_reduce_locality(conf, context.master or "")
        heartbeat = HostSettings.parse(conf).heartbeat_interval
        self.host_conf = {PROCESSES: str(host_processes(conf, context.master or ""))} | {
            key: value for key, value in conf.items() if key.startswith(HostSettings.prefix)
        }
        """The settings of hosts, for all operators alike: they share hosts, on whose reports the driver counts."""
        settings = CoordinatorSettings.parse(conf)
        if (settings.tls_certificate is None) != (settings.tls_key is None):
            raise InvalidSetting(f"{settings.prefix}tlsCertificate and {settings.prefix}tlsKey go together; set both")
        local = (context.master or "").startswith("local")
        self.coordinator = StateStoreCoordinator(
            # The endpoint looks at the clock once in every interval.
            AwakeClock(monotonic, longest_gap=2 * heartbeat),
            report_interval=heartbeat,
            snapshot_lag=SnapshotLagSettings.parse(conf),
        )
        self.claims = Claims(self.coordinator)
        self._context = context
        self._placements: dict[tuple[int, bool], Placement] = {}
        self._placing = Lock()
        self._endpoint = CoordinatorEndpoint(
            self.coordinator,
            host="127.0.0.1" if local else conf["spark.driver.host"],
            software=installed_software(),
            tidy_interval=heartbeat,
            bind=settings.bind_address or ("127.0.0.1" if local else "0.0.0.0"),  # noqa: S104 - executors must reach it
            port=settings.port,
            tls=None
            if settings.tls_certificate is None or settings.tls_key is None
            else Tls(settings.tls_certificate, settings.tls_key),
            tls_root=settings.tls_root,
            handlers={ClaimOperator: self.claims.claim},
        )
        self.address: Address = self._endpoint.start()
        log.info("Registered StateStoreCoordinator endpoint")
        self._stopped = Event()
        Thread(target=self._watch, name="holdfast-queries", daemon=True).start()

    @staticmethod
    def of(session: SparkSession) -> Driver:
        """The one of the session's SparkContext; the first call starts it."""
        key = (os.getpid(), str(session.sparkContext.applicationId))
        with _lock:
            driver = _drivers.get(key)
            if driver is None:
                driver = _drivers[key] = Driver(session)
            else:
                log.debug("Retrieved existing StateStoreCoordinator endpoint")
            return driver

    @staticmethod
    def existing(session: SparkSession) -> Driver | None:
        """The one of the session's SparkContext, if anything of Holdfast's was built there."""
        return _drivers.get((os.getpid(), str(session.sparkContext.applicationId)))

    def placement(self, session: SparkSession, partitions: int, *, anchored: bool) -> Placement:
        """How rows get to so many partitions: one way for all operators, so that no number of them fills the cache."""
        with self._placing:
            placement = self._placements.get((partitions, anchored))
            if placement is None:
                placement = self._placements[partitions, anchored] = Placement(session, partitions, anchored=anchored)
            return placement

    def rebalance(self) -> None:
        """Spread the state partitions of all queries over the executors that there are now."""
        with self._placing:
            for placement in self._placements.values():
                placement.rebalance()

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_EVERY_SECONDS):
            try:
                if self._context._jsc is None:  # noqa: SLF001 - PySpark has no other way to tell
                    self._stop()
                    return
                for run_id in self.claims.ended():
                    self.claims.end_run(run_id)
            except Exception:  # the thread has to outlive whatever goes wrong once
                log.debug("Looking after the queries failed; it is tried again", exc_info=True)

    def _stop(self) -> None:
        self._stopped.set()
        with _lock:
            for key in [key for key, driver in _drivers.items() if driver is self]:
                del _drivers[key]
        self._endpoint.stop()


def spark_conf(session: SparkSession) -> dict[str, str]:
    """The whole configuration: the context's, over which the session's goes."""
    context = dict(session.sparkContext.getConf().getAll())
    own = session._jsparkSession.conf().getAll()  # noqa: SLF001 - PySpark 4.0 shows it only key by key
    iterator = own.iterator()
    while iterator.hasNext():
        pair = iterator.next()
        context[str(pair._1())] = str(pair._2())  # noqa: SLF001 - names of Scala's
    return context


def host_processes(conf: Mapping[str, str], master: str) -> int:
    """How many hosts an executor gets if nobody says: tasks commit all at once, and Python runs one at a time.

    Where Spark's configuration does not tell how many tasks an executor runs at once, it is one.
    """
    local = re.fullmatch(r"local\[(\*|\d+)(?:,.*)?\]", master)
    cluster = re.fullmatch(r"local-cluster\[.*?,(\d+),.*\]", master)
    if local is not None:
        cores = (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
    elif cluster is not None:
        cores = int(cluster[1])
    else:
        cores = int(conf.get("spark.executor.cores", "1"))
    tasks = cores // int(conf.get("spark.task.cpus", "1"))
    return min(max(1, tasks), _MOST_PROCESSES)


def refuse_speculation(conf: Mapping[str, str]) -> None:
    """Refuse copies of running tasks: which of two Spark will count is not known to either of them."""
    if conf.get("spark.speculation", "false").lower() == "true":
        raise InvalidRequest(
            "spark.speculation is on: a second copy of a task could replace the state that the first one committed;"
            " set it to false for this application"
        )


def warn_of_reduce_locality(conf: Mapping[str, str], master: str) -> None:
    """Say so if Spark is free to run a task where its input is, and not where its state is."""
    if has_several_executors(master) and conf.get(REDUCE_LOCALITY, "true").lower() == "true":
        log.warning(
            "%s is on: in batches with little input, tasks may run on other executors than those that hold their state,"
            " which then has to be loaded there; set it to false when the application is started",
            REDUCE_LOCALITY,
        )
