"""The coordinator: how many instance reports per second it takes over TCP.

    python tests/bench/bench_coordinator.py [--hosts 8] [--stores 1000] [--rounds 20] [--json FILE]

The coordinator is in a process of its own, as it is on a driver; the hosts are threads of this one. Each host reports
all its stores in one message, and every store is one instance report. The first round, in which every store is new, is
measured like the others; afterwards the coordinator has to know where they are. Exits with 1 if the target is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

from holdfast.driver.coordinator import StateStoreCoordinator
from holdfast.driver.endpoint import CoordinatorEndpoint
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.rpc.client import RpcClient
from holdfast.rpc.messages import PROTOCOL, GetLocation, Hello, HostId, ReportInstances

TARGET = 10_000
SOFTWARE = {"holdfast": "bench"}


def serve(connection):
    """Run a coordinator until the other end hangs up."""
    coordinator = StateStoreCoordinator(time.monotonic, report_interval=60.0)
    endpoint = CoordinatorEndpoint(
        coordinator, host="127.0.0.1", bind="127.0.0.1", software=SOFTWARE, tidy_interval=5.0
    )
    connection.send(endpoint.start())
    connection.recv()
    endpoint.stop()


class Host:
    """One host with its connection and its stores."""

    def __init__(self, address, number, stores):
        self._id = HostId(str(number), f"host-{number}.example.org", "1")
        run = UUID(int=1)
        root = "s3a://bucket/checkpoints/orders-by-user/state"
        self._loaded = tuple(
            StateStoreProviderId(StateStoreId(root, 1000, number * stores + partition), run)
            for partition in range(stores)
        )
        self._client = RpcClient(address, hello=Hello(PROTOCOL, SOFTWARE, f"host {number}"))

    def report(self, rounds):
        """Report everything so many times; returns the number of instance reports."""
        for _ in range(rounds):
            if self._client.ask(ReportInstances(self._id, self._loaded)):
                raise AssertionError("nothing is active elsewhere")
        return rounds * len(self._loaded)

    def close(self):
        """Make sure that the coordinator has understood, and hang up."""
        expected = f"executor_{self._id.host}_{self._id.executor_id}"
        for provider_id in self._loaded[:: max(1, len(self._loaded) // 20)]:
            if self._client.ask(GetLocation(provider_id)) != expected:
                raise AssertionError(f"the coordinator does not know where {provider_id} is")
        self._client.close()


def measure(address, hosts, stores, rounds):
    """Instance reports per second."""
    reporting = [Host(address, number, stores) for number in range(hosts)]
    with ThreadPoolExecutor(hosts) as pool:
        started = time.perf_counter()
        reports = sum(pool.map(lambda host: host.report(rounds), reporting))
        seconds = time.perf_counter() - started
    for host in reporting:
        host.close()
    return reports / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--stores", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there,))
    server.start()
    try:
        per_second = measure(here.recv(), options.hosts, options.stores, options.rounds)
    finally:
        here.send("stop")
        server.join()
    work = f"{options.hosts} hosts with {options.stores:,} stores each"
    print(f"{work}: {per_second:,.0f} instance reports per second")
    if options.json:
        options.json.write_text(json.dumps({"work": work, "per_second": per_second, "target": TARGET}, indent=2) + "\n")
    if per_second < TARGET:
        print(f"{per_second:,.0f} is less than {TARGET:,}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
