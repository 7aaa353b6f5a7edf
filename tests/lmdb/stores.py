"""Steps that the tests of the lmdb backend share."""

from holdfast.conformance import Backend
from holdfast.conformance.base import commit, key, read, value

__all__ = ["commit", "custom", "key", "lmdb_backend", "many", "read", "value", "versions"]


def lmdb_backend(tmp_path, checkpoint="state", **conf):
    """The backend with its local folder and its checkpoint below ``tmp_path``."""
    settings = {f"spark.holdfast.lmdb.{name}": text for name, text in conf.items()}
    settings.setdefault("spark.holdfast.lmdb.localDir", str(tmp_path / "local"))
    return Backend("lmdb", str(tmp_path / checkpoint), conf=settings)


def custom(provider, version=0):
    """The custom metrics by name."""
    with provider.get_read_store(version) as store:
        return {metric.name: number for metric, number in store.metrics.custom_metrics.items()}


def versions(provider, first, last):
    """Make the versions ``first`` to ``last``; returns what the last contains, if the state was made by this alone."""
    for version in range(first, last + 1):
        commit(provider, version - 1, {key(f"k{version}"): value(version), key("newest"): value(version)})
    return {key(f"k{version}"): value(version) for version in range(1, last + 1)} | {key("newest"): value(last)}


def many(first, count):
    """So many pairs; those of neighbouring numbers share half of their keys."""
    return {key(f"m{first * count // 2 + number}"): value(number, "x" * first) for number in range(count)}
