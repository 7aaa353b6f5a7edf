"""The lmdb backend with its own fault points, for the kit to kill it there."""

from holdfast_lmdb import LmdbStateStoreProvider


class LmdbAtOnce(LmdbStateStoreProvider):
    """Used without an overlay: then every commit passes them."""

    fault_points = (*LmdbStateStoreProvider.fault_points, "lmdb.before_commit", "lmdb.after_commit")
