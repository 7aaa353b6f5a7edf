"""Which backend serves an operator, and what is said of settings that cannot be."""

import pytest
from streaming_jobs import Input, outputs, run

import holdfast as hf
from holdfast.errors import InvalidSetting, ProviderNotFound
from holdfast.plugins.registry import installed_providers

pytestmark = pytest.mark.spark

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def configured(spark):
    """Set keys of the session for one test."""
    before = {}

    def configure(**settings):
        for name, value in settings.items():
            key = name.replace("__", ".")
            before.setdefault(key, spark.conf.get(key, None))
            spark.conf.set(key, value)

    yield configure
    for key, value in before.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)


@pytest.fixture
def numbers(spark, tmp_path):
    source = Input(spark, tmp_path / "numbers", "k int")
    source.add((1,), (1,), (2,))
    source.add((1,))
    return source


def counted(source, **options):
    return hf.group_by(source.stream(), "k", partitions=1, **options).agg(n=hf.count())


@pytest.mark.parametrize(
    ("way", "provider"),
    [
        *(("argument", name) for name in ("memory", "sqlite", HDFS, "holdfast_files.HDFSBackedStateStoreProvider")),
        *(("holdfast's key", name) for name in ("memory", "files")),
        *(("Spark's key", name) for name in ("sqlite", HDFS)),
    ],
)
def test_ways_to_choose(numbers, tmp_path, configured, way, provider):
    if way == "holdfast's key":
        configured(spark__holdfast__providerClass=provider)
    if way == "Spark's key":
        configured(spark__sql__streaming__stateStore__providerClass=provider)
    if provider == "sqlite":
        pytest.importorskip("holdfast_sqlite")
    frame = counted(numbers, **({"provider": provider} if way == "argument" else {}))
    assert outputs(frame, tmp_path / "checkpoint") == [[(1, 2), (2, 1)], [(1, 3)]]
    deltas = sorted(path.name for path in (tmp_path / "checkpoint" / "state" / "1000" / "0").glob("*.delta"))
    assert deltas == ([] if provider in {"memory", "sqlite"} else ["1.delta", "2.delta"])


def test_the_argument_goes_before_the_keys(numbers, tmp_path, configured):
    configured(spark__holdfast__providerClass="nobody", spark__sql__streaming__stateStore__providerClass="no one")
    assert len(outputs(counted(numbers, provider="memory"), tmp_path / "checkpoint")) == 2


@pytest.mark.parametrize(("ours", "sparks", "deltas"), [("memory", "files", 0), ("files", "memory", 2)])
def test_our_key_goes_before_sparks(numbers, tmp_path, configured, ours, sparks, deltas):
    configured(spark__holdfast__providerClass=ours, spark__sql__streaming__stateStore__providerClass=sparks)
    assert outputs(counted(numbers), tmp_path / "checkpoint") == [[(1, 2), (2, 1)], [(1, 3)]]
    assert len(list((tmp_path / "checkpoint" / "state" / "1000" / "0").glob("*.delta"))) == deltas


def test_settings_are_read_when_the_operator_is_built(numbers, tmp_path, configured):
    configured(spark__holdfast__providerClass="memory")
    frame = counted(numbers)
    configured(spark__holdfast__providerClass="files")
    assert len(outputs(frame, tmp_path / "checkpoint")) == 2
    assert not list((tmp_path / "checkpoint").rglob("*.delta"))


def test_rocksdb_for_the_jvm_and_ours_beside_it(numbers, tmp_path, configured):
    if installed_providers().find(ROCKSDB) is not None:
        pytest.skip("an installed package stands in for Spark's RocksDB provider")
    configured(spark__sql__streaming__stateStore__providerClass=ROCKSDB)
    with pytest.raises(ProviderNotFound, match=r"class of Spark's JVM.*installed: .*files") as e:
        counted(numbers)
    assert "set spark.holdfast.providerClass beside it" in str(e.value)
    configured(spark__holdfast__providerClass="files")
    frame = counted(numbers).dropDuplicates(["k"])
    assert outputs(frame, tmp_path / "checkpoint") == [[(1, 2), (2, 1)], []]
    assert [path.suffix for path in (tmp_path / "checkpoint" / "state" / "0" / "0").glob("*.zip")], "RocksDB's files"
    assert (tmp_path / "checkpoint" / "state" / "1000" / "0" / "2.delta").exists()


def test_an_unknown_provider(numbers):
    with pytest.raises(ProviderNotFound, match=r"no state store provider 'memry'.*did you mean memory\?"):
        counted(numbers, provider="memry")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("spark.holdfast.providerclass", "files", r"unknown setting .*did you mean spark.holdfast.providerClass\?"),
        ("spark.holdfast.operator.memorylimit", "1g", r"did you mean spark.holdfast.operator.memoryLimit\?"),
        ("spark.holdfast.operator.memoryLimit", "lots", "memoryLimit is 'lots'; accepted: "),
        ("spark.holdfast.operator.memoryLimit", "1", "memoryLimit is '1'; accepted: .*at least 1k"),
        ("spark.holdfast.operator.fsOptions", "[1]", "fsOptions is not a JSON object"),
        ("spark.holdfast.host.proceses", "2", r"did you mean spark.holdfast.host.processes\?"),
        ("spark.holdfast.coordinator.prot", "2", r"did you mean spark.holdfast.coordinator.port\?"),
        ("spark.holdfast.sqlite.directry", "x", r"did you mean spark.holdfast.sqlite.directory\?"),
    ],
)
def test_settings_that_cannot_be(numbers, configured, key, value, said):
    if ".sqlite." in key:
        pytest.importorskip("holdfast_sqlite")
    configured(**{key: value})
    with pytest.raises(InvalidSetting, match=said):
        counted(numbers, **({"provider": "sqlite"} if ".sqlite." in key else {}))


def test_metrics_of_a_backend_reach_the_driver(numbers, tmp_path):
    query, _ = run(counted(numbers, provider="memory"), tmp_path / "checkpoint")
    assert [each["numRowsTotal"] for each in hf.state_operators(query)] == [2, 2]
