"""The lmdb backend with its own fault points, for the kit to kill it there."""

from holdfast_lmdb import LmdbStateStoreProvider


class LmdbAtOnce(LmdbStateStoreProvider):
    """Used without an overlay: then every commit passes them."""

    fault_points = (*LmdbStateStoreProvider.fault_points, "lmdb.before_commit", "lmdb.after_commit")


class LmdbInParts(LmdbAtOnce):
    """Writes every few keys in a transaction of their own, so that a commit passes the first of them several times."""

    keys_in_part = 3
