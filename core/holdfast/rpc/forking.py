"""Why a forked child may not talk when its parent did.

gRPC's threads do not exist in the child, while its state says they do: any call there hangs, its timeout included.
A refusal is the only useful answer.
"""

from __future__ import annotations

import os

from holdfast.errors import InvalidRequest

_used = False
_inherited = False


def use_grpc() -> None:
    """Call before anything of gRPC's; raises in a process that was forked after its parent had used it."""
    global _used
    if _inherited:
        raise InvalidRequest(
            f"process {os.getpid()} was forked from one that already had connections, so it cannot have its own;"
            " start it as a new program (multiprocessing: the 'spawn' method) or fork before the first use"
        )
    _used = True


def _forked() -> None:
    global _inherited
    _inherited = _inherited or _used


os.register_at_fork(after_in_child=_forked)
