"""The maps that are open in this process.

LMDB refuses to open an environment twice in one process, and two runs of a query overlap for a while: the new run's
providers share the maps of the old one's, and the last to leave closes them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast_lmdb.lmdb_map import LmdbMap

log = logging.getLogger(__name__)


class SharedMaps:
    """Maps by name, each opened once and closed when its last user leaves."""

    def __init__(self) -> None:
        self._opening: defaultdict[str, Lock] = defaultdict(Lock)
        self._open: dict[str, tuple[LmdbMap, int]] = {}

    def join(self, name: str, make: Callable[[], LmdbMap]) -> LmdbMap:
        """Use the map of that name, made now if it is not open."""
        with self._opening[name]:
            found, users = self._open.get(name) or (make(), 0)
            self._open[name] = (found, users + 1)
            return found

    def leave(self, name: str) -> None:
        """Stop using the map of that name."""
        with self._opening[name]:
            found, users = self._open[name]
            if users > 1:
                self._open[name] = (found, users - 1)
                return
            del self._open[name]
            with found.lock:
                try:
                    found.flush(found.newest)
                except HoldfastError:
                    # What is missing will be taken from the log.
                    log.warning("The last versions of %s could not be written", name, exc_info=True)
                found.environment.close()


shared_maps = SharedMaps()
"""Those of this process."""
