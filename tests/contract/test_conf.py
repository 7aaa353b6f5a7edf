from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from holdfast import ByteSize, Seconds, Settings, StateStoreConf, setting
from holdfast.errors import InvalidSetting

PREFIX = "spark.sql.streaming.stateStore."


def test_defaults_are_sparks():
    conf = StateStoreConf.parse({})
    assert conf.min_deltas_for_snapshot == 10
    assert conf.min_versions_to_retain == 100
    assert conf.max_versions_to_retain_in_memory == 2
    assert conf.maintenance_interval == 60.0
    assert conf.compression_codec == "lz4"
    assert conf.provider_class == "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    assert conf.confs == {}
    assert conf == StateStoreConf()


@pytest.mark.spark
def test_defaults_equal_those_of_the_installed_spark(spark):
    conf = StateStoreConf.parse({})
    sparks = spark._jsparkSession.sessionState().conf()
    assert conf.min_deltas_for_snapshot == sparks.stateStoreMinDeltasForSnapshot()
    assert conf.min_versions_to_retain == sparks.minBatchesToRetain()
    assert conf.max_versions_to_retain_in_memory == sparks.maxBatchesToRetainInMemory()
    assert conf.maintenance_interval * 1000 == sparks.streamingMaintenanceInterval()
    assert conf.compression_codec == sparks.stateStoreCompressionCodec()
    assert conf.provider_class == sparks.stateStoreProviderClass()


def test_every_state_store_key_is_captured():
    given = {
        PREFIX + "minDeltasForSnapshot": " 3 ",
        "spark.sql.streaming.minBatchesToRetain": "7",
        "spark.sql.streaming.maxBatchesToRetainInMemory": "0",
        PREFIX + "maintenanceInterval": "500ms",
        PREFIX + "compression.codec": "ZSTD",
        PREFIX + "rocksdb.blockSizeKB": "4",
        "spark.holdfast.sqlite.directory": "/db",
        "spark.sql.shuffle.partitions": "8",
    }
    conf = StateStoreConf.parse(given)
    assert conf.min_deltas_for_snapshot == 3
    assert conf.min_versions_to_retain == 7
    assert conf.max_versions_to_retain_in_memory == 0
    assert conf.maintenance_interval == 0.5
    assert conf.compression_codec == "zstd"
    assert conf.confs == {key: value for key, value in given.items() if key.startswith(PREFIX)}
    assert conf.backend_confs == {"spark.holdfast.sqlite.directory": "/db"}


def test_holdfasts_provider_key_goes_first():
    both = {PREFIX + "providerClass": "a.B", "spark.holdfast.providerClass": "lmdb"}
    assert StateStoreConf.parse(both).provider_class == "lmdb"
    assert StateStoreConf.parse({PREFIX + "providerClass": "a.B"}).provider_class == "a.B"


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        (PREFIX + "minDeltasForSnapshot", "ten", "a whole number, at least 1"),
        (PREFIX + "minDeltasForSnapshot", "0", "a whole number, at least 1"),
        (PREFIX + "minDeltasForSnapshot", "1_0", "a whole number, at least 1"),
        ("spark.sql.streaming.minBatchesToRetain", "1.5", "a whole number, at least 1"),
        ("spark.sql.streaming.maxBatchesToRetainInMemory", "-1", "a whole number, at least 0"),
        (PREFIX + "maintenanceInterval", "1 fortnight", "a duration such as 500ms, 30s, 5m, 2h or 1d, at least 1ms"),
        (PREFIX + "maintenanceInterval", "1.5s", "a duration such as"),
        (PREFIX + "compression.codec", "snappy", "one of lz4, zstd"),
    ],
)
def test_bad_value_names_key_value_and_what_is_accepted(key, value, accepted):
    with pytest.raises(InvalidSetting) as error:
        StateStoreConf.parse({key: value})
    for part in (key, repr(value), accepted):
        assert part in str(error.value)


def test_value_that_is_no_text():
    with pytest.raises(InvalidSetting, match=r"minDeltasForSnapshot is None; accepted: a whole number"):
        StateStoreConf.parse({PREFIX + "minDeltasForSnapshot": None})
    assert StateStoreConf.parse({PREFIX + "minDeltasForSnapshot": 5}).min_deltas_for_snapshot == 5


def test_misspelt_key_of_holdfast():
    with pytest.raises(InvalidSetting, match=r"spark\.holdfast\.provider_class; did you mean .*providerClass\?"):
        StateStoreConf.parse({"spark.holdfast.provider_class": "memory"})


@dataclass(frozen=True, kw_only=True)
class SampleSettings(Settings):
    prefix: ClassVar[str] = "spark.holdfast.sample."

    fsync: bool = setting(True, "Whether to wait for the disk.")
    local_dir: str | None = setting(None, "Folder on this machine.")
    map_size: ByteSize = setting(ByteSize(64 * 1024**2), "Size at the start.", minimum=1024)
    pause: Seconds = setting(Seconds(1.5), "Time between attempts.")
    ratio: float = setting(0.5, "How full is full.")
    mode: Literal["fast", "safe", "Odd"] = setting("safe", "What goes first.")
    limit: Seconds | None = setting(Seconds(30.0), "When to give up.")


def parse(**values):
    return SampleSettings.parse({SampleSettings.prefix + key: value for key, value in values.items()})


def test_settings_of_a_backend():
    assert parse() == SampleSettings()
    parsed = parse(fsync="FALSE", localDir="/x y", mapSize="2g", pause="3min", ratio="0.25", mode="Fast")
    assert parsed == SampleSettings(
        fsync=False, local_dir="/x y", map_size=ByteSize(2 * 1024**3), pause=Seconds(180.0), ratio=0.25, mode="fast"
    )
    assert SampleSettings.parse({"spark.holdfast.other.x": "1"}) == SampleSettings()
    assert parse(mode="odd").mode == "Odd"
    assert parse(limit="").limit is None
    assert parse(mapSize=2048, fsync=False, ratio=0.1) == SampleSettings(
        map_size=ByteSize(2048), fsync=False, ratio=0.1
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250", 0.25),
        ("7us", 7e-6),
        ("10ms", 0.01),
        ("5s", 5.0),
        ("2m", 120.0),
        ("2min", 120.0),
        ("1h", 3600.0),
        ("1d", 86400.0),
    ],
)
def test_durations_as_spark_spells_them(text, seconds):
    assert parse(pause=text).pause == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"), [("2048", 2048), ("4kb", 4096), ("4K", 4096), ("3m", 3 << 20), ("1gb", 1 << 30), ("1t", 1 << 40)]
)
def test_sizes_as_spark_spells_them(text, size):
    assert parse(mapSize=text).map_size == size


@pytest.mark.spark
@pytest.mark.parametrize("text", ["250", "7us", "10ms", "5s", "2m", "2min", "1h", "1d", "5S"])
def test_durations_are_read_like_the_installed_spark_reads_them(spark, text):
    assert int(parse(pause=text).pause * 1000) == sparks_milliseconds(spark, text)


@pytest.mark.spark
@pytest.mark.parametrize("text", ["1.5s", "1 s", "x", "", "-1s"])
def test_durations_that_spark_refuses_are_refused(spark, text):
    if not text.startswith("-"):  # Spark's parser takes a negative time; a time between two things it is not
        with pytest.raises(Exception, match="Failed to parse time string"):
            sparks_milliseconds(spark, text)
    with pytest.raises(InvalidSetting):
        parse(pause=text)


def sparks_milliseconds(spark, text):
    unit = spark._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    return spark._jvm.org.apache.spark.network.util.JavaUtils.timeStringAs(text, unit)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fsync", "yes"),
        ("mapSize", "1.5g"),
        ("mapSize", "1000"),
        ("mapSize", "-5k"),
        ("ratio", "half"),
        ("ratio", "nan"),
        ("pause", "9" * 400 + "s"),
        ("mode", "slow"),
    ],
)
def test_bad_values_of_a_backend(key, value):
    with pytest.raises(InvalidSetting, match=rf"spark\.holdfast\.sample\.{key} is '{value}'; accepted: "):
        parse(**{key: value})


def test_unknown_setting_under_the_prefix():
    with pytest.raises(InvalidSetting, match=r"unknown setting .*\.mapsize; did you mean .*\.mapSize\?"):
        parse(mapsize="1m")
    with pytest.raises(InvalidSetting, match="known settings: .*sample.fsync"):
        parse(qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq="1")


def test_defaults_are_shown_as_they_would_be_written():
    shown = {item.key.rpartition(".")[2]: item.shown_default for item in SampleSettings.declared()}
    assert shown == {
        "fsync": "true", "localDir": "not set", "mapSize": "64m", "pause": "1.5s", "ratio": "0.5", "mode": "safe",
        "limit": "30s",
    }  # fmt: skip
