"""The process that the kit kills: ``python -m holdfast.conformance.child BACKEND PARTITION VERSION FAULT_POINT PASS``.

It writes VERSION to its standard output when it is ready, then commits one version after the other
and writes each number once the commit has returned. It kills itself at FAULT_POINT when it comes
there for the PASS-th time; with an empty FAULT_POINT it goes on until it is killed.
"""

from __future__ import annotations

import os
import signal
import sys

from holdfast.conformance.backend import Backend
from holdfast.conformance.workload import changes
from holdfast.contract.faults import watch_fault_points

COMMITS_WITH_FAULT_POINT = 10
COMMITS_UNTIL_KILLED = 5000
MAINTENANCE_EVERY = 5


def main(backend: Backend, partition: int, version: int, die_at: str, die_on_pass: int) -> None:
    """Commit until killed."""
    passes = 0

    def die(reached: str) -> None:
        nonlocal passes
        if reached == die_at:
            passes += 1
            if passes == die_on_pass:
                os.kill(os.getpid(), signal.SIGKILL)

    def report(number: int) -> None:
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()

    provider = backend.open(partition_id=partition)
    report(version)
    with watch_fault_points(die):
        for base in range(version, version + (COMMITS_WITH_FAULT_POINT if die_at else COMMITS_UNTIL_KILLED)):
            puts, removes = changes(base + 1)
            with provider.get_store(base) as store:
                store.put_many(list(puts), list(puts.values()))
                store.remove_many(removes)
                report(store.commit())
            if base % MAINTENANCE_EVERY == 0:
                provider.do_maintenance()


if __name__ == "__main__":
    backend_json, partition_text, version_text, fault_point, pass_text = sys.argv[1:]
    main(Backend.from_json(backend_json), int(partition_text), int(version_text), fault_point, int(pass_text))
