"""Choosing providers by name, and what is said when that fails."""

import importlib.metadata
import sys
import types
from dataclasses import dataclass
from typing import ClassVar

import pytest

from holdfast import (
    Capability,
    ProviderSpec,
    Settings,
    StateStoreConf,
    StateStoreId,
    StateStoreProvider,
    Unguarded,
    VersionedProvider,
    create_and_init,
    hookimpl,
    setting,
)
from holdfast.errors import (
    BrokenPlugin,
    DuplicateProvider,
    InvalidProvider,
    InvalidSetting,
    ProviderNotFound,
    VersionSkew,
)
from holdfast.plugins.discovery import Plugin, installed_plugins
from holdfast.plugins.registry import ProviderRegistry, installed_providers
from holdfast.plugins.versions import check_same_software, software_versions
from holdfast_memory import MemoryStateStoreProvider

SPARKS_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
SPARKS_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Mine(MemoryStateStoreProvider):
    pass


class Unfinished(VersionedProvider):
    capabilities: ClassVar = frozenset({Capability.VOLATILE})


class NeedsArguments(MemoryStateStoreProvider):
    def __init__(self, path):
        self.path = path


class TwoDurabilities(MemoryStateStoreProvider):
    capabilities: ClassVar = frozenset({Capability.LOG, Capability.EXTERNAL})


class NoDurability(MemoryStateStoreProvider):
    capabilities: ClassVar = frozenset({Capability.RANGE_SCAN})


@dataclass(frozen=True, kw_only=True)
class MineSettings(Settings):
    prefix: ClassVar[str] = "spark.holdfast.mine."
    depth: int = setting(3, "How deep.")


class PlainSettings(Settings):
    prefix: ClassVar[str] = "spark.holdfast.plain."


@dataclass(frozen=True, kw_only=True)
class ListSettings(Settings):
    prefix: ClassVar[str] = "spark.holdfast.listed."
    depths: list = setting((), "How deep.")


@dataclass(frozen=True, kw_only=True)
class NoPrefixSettings(Settings):
    depth: int = setting(3, "How deep.")


def having(settings):
    return type(f"Having{settings.__name__}", (MemoryStateStoreProvider,), {"settings": settings})


class WithSettings(MemoryStateStoreProvider):
    settings: ClassVar = MineSettings


def plugin(*specs, name="mine", distribution="acme-stores", version="0.3"):
    module = types.ModuleType(f"{distribution.replace('-', '_')}_{name}")
    module.holdfast_providers = hookimpl(lambda: specs, specname="holdfast_providers")
    return Plugin(name, module, distribution, version)


def registry(*plugins):
    return ProviderRegistry([*installed_plugins(), *plugins])


# Resolving


def test_built_in_backends_are_found_by_entry_point_like_any_other():
    names = {entry.name for entry in importlib.metadata.entry_points(group="holdfast")}
    assert "memory" in names
    assert installed_providers().resolve("memory") is MemoryStateStoreProvider


@pytest.mark.parametrize(
    "name",
    ["memory", "holdfast_memory.MemoryStateStoreProvider", "holdfast_memory.provider.MemoryStateStoreProvider"],
)
def test_registered_provider_by_any_of_its_names(name):
    assert installed_providers().resolve(name) is MemoryStateStoreProvider


def test_importable_but_unregistered_class():
    assert installed_providers().resolve(f"{__name__}.Mine") is Mine


def test_sparks_name_means_whoever_claims_it():
    found = registry(plugin(ProviderSpec("mine", Mine, aliases=(SPARKS_ROCKSDB,))))
    assert found.resolve(SPARKS_ROCKSDB) is Mine


def test_sparks_name_that_nobody_claims():
    with pytest.raises(ProviderNotFound, match=r"class of Spark's JVM.*installed: memory"):
        ProviderRegistry([p for p in installed_plugins() if p.name == "memory"]).resolve(SPARKS_ROCKSDB)


def test_unknown_name_lists_what_is_installed_and_the_nearest():
    with pytest.raises(ProviderNotFound, match=r"'memry'.*installed: .*memory.*did you mean memory\?"):
        installed_providers().resolve("memry")
    with pytest.raises(ProviderNotFound, match=r"no module no_such_module on the import path.*installed: .*memory"):
        installed_providers().resolve("no_such_module.Provider")
    with pytest.raises(ProviderNotFound, match=r"module holdfast_memory has no MemoryProvider"):
        installed_providers().resolve("holdfast_memory.MemoryProvider")


def test_class_whose_import_fails(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import a_library_that_is_missing\nclass P: pass\n")
    (tmp_path / "exploding.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BrokenPlugin, match=r"importing half_installed failed: No module named 'a_library"):
        installed_providers().resolve("half_installed.P")
    with pytest.raises(BrokenPlugin, match=r"importing exploding failed: ZeroDivisionError"):
        installed_providers().resolve("exploding.P")


# Wrong classes


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Unfinished", "does not implement open_view, publish"),
        ("TwoDurabilities", "exactly one of EXTERNAL, LOG, VOLATILE"),
        ("NoDurability", "exactly one of EXTERNAL, LOG, VOLATILE"),
        ("MineSettings", "not a subclass of holdfast.StateStoreProvider"),
        ("SPARKS_HDFS", "is not a class"),
    ],
)
def test_wrong_classes_say_what_is_wrong(name, said):
    with pytest.raises(InvalidProvider, match=said):
        installed_providers().resolve(f"{__name__}.{name}")


def test_provider_that_cannot_be_created():
    conf = StateStoreConf.parse({"spark.holdfast.providerClass": f"{__name__}.NeedsArguments"})
    with pytest.raises(InvalidProvider, match=r"cannot be created without arguments.*belongs into init"):
        create_and_init(StateStoreId("/q", 0, 0), "k int", "v int", None, conf, {}, Unguarded())


# Plug-ins that are wrong do not disturb the others


def check_broken(broken, error_type, said, name="mine"):
    found = registry(broken)
    assert found.resolve("memory") is MemoryStateStoreProvider
    assert len(found.problems) == 1
    assert isinstance(found.problems[0].error, error_type)
    with pytest.raises(error_type, match=said):
        found.resolve(name)


def test_plugin_that_fails_to_import(tmp_path, monkeypatch):
    (tmp_path / "acme_broken.py").write_text("import a_library_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry = importlib.metadata.EntryPoint("mine", "acme_broken", "holdfast")
    broken = Plugin("mine", entry, "acme-stores", "0.3")
    said = r"plug-in 'mine' of acme-stores 0\.3 cannot be imported: ModuleNotFoundError: .*a_library_that_is_missing"
    check_broken(broken, BrokenPlugin, said)
    check_broken(broken, BrokenPlugin, said, name="acme_broken.Provider")


def test_plugin_that_ends_the_process(tmp_path, monkeypatch):
    (tmp_path / "acme_exits.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry = importlib.metadata.EntryPoint("mine", "acme_exits", "holdfast")
    check_broken(Plugin("mine", entry, "acme-stores", "0.3"), BrokenPlugin, "cannot be imported: SystemExit: 3")


def test_plugin_with_a_misspelt_hook():
    def holdfast_provider():
        return [ProviderSpec("mine", Mine)]

    module = types.ModuleType("acme")
    module.holdfast_provider = hookimpl(holdfast_provider)
    check_broken(
        Plugin("mine", module, "acme-stores", "0.3"),
        BrokenPlugin,
        "acme-stores 0.3 misuses the hooks.*holdfast_provider.*the hooks are .*holdfast_providers",
    )


def test_plugin_with_a_wrong_hook_argument():
    def holdfast_provider_loaded(store):
        pass

    module = types.ModuleType("acme")
    module.holdfast_provider_loaded = hookimpl(holdfast_provider_loaded)
    check_broken(Plugin("mine", module, "acme-stores", "0.3"), BrokenPlugin, "misuses the hooks.*store")


def test_plugin_that_forgot_the_marker():
    module = types.ModuleType("acme")
    module.holdfast_providers = lambda: [ProviderSpec("mine", Mine)]
    check_broken(Plugin("mine", module, "acme-stores", "0.3"), BrokenPlugin, "has no hook.*@holdfast.hookimpl")


def test_plugin_that_fails_when_asked():
    module = types.ModuleType("acme")

    def holdfast_providers():
        raise RuntimeError("licence expired")

    module.holdfast_providers = hookimpl(holdfast_providers)
    check_broken(
        Plugin("mine", module, "acme-stores", "0.3"), BrokenPlugin, "failed in holdfast_providers.*licence expired"
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (ProviderSpec("mine", Unfinished), "does not implement"),
        (ProviderSpec("Mine!", Mine), "name 'Mine!' is not usable"),
        (Mine, "returns ProviderSpec objects, not ABCMeta"),
        (ProviderSpec("mine", StateStoreProvider), "does not implement"),
        (ProviderSpec(None, Mine), "name None is not usable"),
        (ProviderSpec("mine", Mine, aliases="other"), "aliases must be a tuple"),
        (ProviderSpec("mine", having(PlainSettings)), "must be a frozen dataclass"),
        (ProviderSpec("mine", having(ListSettings)), "a setting cannot be"),
        (ProviderSpec("mine", having(NoPrefixSettings)), "prefix is None"),
    ],
)
def test_plugin_with_a_wrong_provider(spec, said):
    check_broken(plugin(spec), InvalidProvider, said, name=str(getattr(spec, "name", "mine")))


def test_two_claims_to_one_name_are_refused_and_name_both():
    first = plugin(ProviderSpec("mine", Mine))
    second = plugin(ProviderSpec("mine", WithSettings), distribution="zeta-stores", version="9.1")
    found = registry(first, second)
    with pytest.raises(DuplicateProvider, match=r"'mine' is offered by acme-stores 0\.3 .*and zeta-stores 9\.1"):
        found.resolve("mine")
    assert [type(problem.error) for problem in found.problems] == [DuplicateProvider]
    assert found.resolve("memory") is MemoryStateStoreProvider
    assert found.resolve(f"{__name__}.Mine") is Mine, "the class name is still unambiguous"


def test_a_name_that_is_another_ones_alias():
    found = registry(
        plugin(ProviderSpec("one", Mine, aliases=(SPARKS_ROCKSDB,))),
        plugin(ProviderSpec("two", WithSettings, aliases=(SPARKS_ROCKSDB,)), distribution="zeta-stores"),
    )
    with pytest.raises(DuplicateProvider, match="acme-stores.*zeta-stores"):
        found.resolve(SPARKS_ROCKSDB)


# Making one


def create(conf, found):
    return create_and_init(
        StateStoreId("/q", 0, 0), "k int", "v int", None, StateStoreConf.parse(conf), {}, Unguarded(), registry=found
    )


def test_settings_are_checked_before_anything_is_opened():
    found = registry(plugin(ProviderSpec("mine", WithSettings)))
    conf = {"spark.holdfast.providerClass": "mine", "spark.holdfast.mine.dept": "4"}
    with pytest.raises(InvalidSetting, match=r"did you mean spark\.holdfast\.mine\.depth\?"):
        create(conf, found)
    with pytest.raises(InvalidSetting, match="depth is 'x'"):
        create({"spark.holdfast.providerClass": "mine", "spark.holdfast.mine.depth": "x"}, found)
    assert type(create({"spark.holdfast.providerClass": "mine"}, found)) is WithSettings


def observer(name, told):
    module = types.ModuleType(name)

    def holdfast_provider_loaded(provider):
        told.append(("loaded", provider.store_id.partition_id))

    def holdfast_store_committed(version):
        told.append(("committed", version))

    def holdfast_snapshot_written(version, size):
        told.append(("snapshot", version, size > 0))

    for hook in (holdfast_provider_loaded, holdfast_store_committed, holdfast_snapshot_written):
        setattr(module, hook.__name__, hookimpl(hook))
    return Plugin(name, module, "acme-watch", "1.0")


def test_observers_are_told_what_happens(tmp_path):
    told = []
    found = registry(observer("watch", told))
    assert found.problems == ()
    conf = StateStoreConf.parse({"spark.sql.streaming.stateStore.minDeltasForSnapshot": "1"})
    store_id = StateStoreId(str(tmp_path), 0, 4)
    provider = create_and_init(store_id, "k int", "v int", None, conf, {}, Unguarded(), registry=found)
    for version in range(3):
        with provider.get_store(version) as store:
            store.commit()
    with provider.get_store(3):
        provider.do_maintenance()
    assert told == [("loaded", 4), ("committed", 1), ("committed", 2), ("committed", 3), ("snapshot", 3, True)]


def test_an_observer_that_fails_harms_nobody(caplog):
    def holdfast_provider_loaded(provider):
        raise RuntimeError("observer is blind")

    module = types.ModuleType("blind")
    module.holdfast_provider_loaded = hookimpl(holdfast_provider_loaded)
    told = []
    plugins = [observer("first", told), Plugin("blind", module, "acme-watch", "1.0"), observer("last", told)]
    create({"spark.holdfast.providerClass": "memory"}, registry(*plugins))
    assert told == [("loaded", 0), ("loaded", 0)]
    assert "observer is blind" in caplog.text


def test_settings_that_nobody_reads_are_logged(caplog):
    create({"spark.holdfast.providerClass": "memory", "spark.holdfast.memori.depth": "1"}, registry())
    assert "Setting spark.holdfast.memori.depth is not used" in caplog.text


# Versions on both ends


def test_same_software():
    versions = software_versions("memory")
    assert versions == {"holdfast": importlib.metadata.version("holdfast")}
    check_same_software(versions, dict(versions), "executor 1")


def test_different_software_names_every_difference():
    found = registry(plugin(ProviderSpec("mine", Mine)))
    driver = software_versions("mine", found)
    assert driver["acme-stores"] == "0.3"
    with pytest.raises(VersionSkew) as error:
        check_same_software(driver, {**driver, "holdfast": "0.0.9", "acme-stores": "0.2"}, "executor 7 on host-b")
    assert "acme-stores is 0.3 on the driver and 0.2 on executor 7 on host-b" in str(error.value)
    assert f"holdfast is {driver['holdfast']} on the driver and 0.0.9 on executor 7 on host-b" in str(error.value)
    check_same_software(driver, {"holdfast": driver["holdfast"]}, "executor 7")  # whoever needs it will miss it by name


def test_loading_plugins_is_not_a_side_effect_of_import():
    import subprocess

    code = "import sys, holdfast; sys.exit('holdfast_memory' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
