"""The process that the kit kills: ``python -m holdfast.conformance.child BACKEND VERSION [FAULT_POINT]``.

It commits one version after the other, from VERSION on, and writes each number to its standard
output once the commit has returned. With a fault point it kills itself there, the third time;
without one it goes on until it is killed.
"""

from __future__ import annotations

import os
import signal
import sys

from holdfast.conformance.backend import Backend
from holdfast.conformance.workload import changes
from holdfast.contract.faults import watch_fault_points

PASSES_BEFORE_DYING = 2
COMMITS_WITH_FAULT_POINT = 10
COMMITS_UNTIL_KILLED = 5000
MAINTENANCE_EVERY = 5


def main(backend: Backend, version: int, die_at: str) -> None:
    """Commit until killed."""
    passes = 0

    def die(reached: str) -> None:
        nonlocal passes
        if reached == die_at:
            passes += 1
            if passes > PASSES_BEFORE_DYING:
                os.kill(os.getpid(), signal.SIGKILL)

    provider = backend.open()
    with watch_fault_points(die):
        for base in range(version, version + (COMMITS_WITH_FAULT_POINT if die_at else COMMITS_UNTIL_KILLED)):
            puts, removes = changes(base + 1)
            with provider.get_store(base) as store:
                store.put_many(list(puts), list(puts.values()))
                store.remove_many(removes)
                sys.stdout.write(f"{store.commit()}\n")
            sys.stdout.flush()
            if base % MAINTENANCE_EVERY == 0:
                provider.do_maintenance()


if __name__ == "__main__":
    main(Backend.from_json(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
