"""A plug-in that brings a filesystem on which Holdfast knows no safe way to write."""

import sys

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

import holdfast_files.plugin
from holdfast import CommitGuard, FilesystemAdapter, StateStoreConf, StateStoreId, create_and_init, hookimpl
from holdfast.errors import BrokenPlugin, Fenced, UnsupportedOperation
from holdfast.plugins.discovery import Plugin
from holdfast.plugins.registry import ProviderRegistry

FILES = Plugin("files", holdfast_files.plugin, "holdfast", "0.1")


class Vault(MemoryFileSystem):
    """A store of its own, whose rename is fsspec's copy."""

    protocol = "vault"
    store = {}  # noqa: RUF012 -- as its base has it
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("vault://").strip("/")


class VaultAdapter(FilesystemAdapter):
    def replace(self, fs, path, data):
        fs.pipe_file(path, data)

    def create(self, fs, path, data):
        made = MemoryFile(fs, path, data)
        return fs.store.setdefault(path, made) is made


class VaultPlugin:
    """What the package's entry point loads."""

    @hookimpl
    def holdfast_filesystem_adapter(self, protocol):
        return VaultAdapter() if protocol == "vault" else None


class SecondVaultPlugin(VaultPlugin):
    pass


class FailingPlugin:
    @hookimpl
    def holdfast_filesystem_adapter(self, protocol):
        raise RuntimeError("no licence")


class WrongPlugin:
    @hookimpl
    def holdfast_filesystem_adapter(self):
        return "vault"


@pytest.fixture
def url(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "vault", Vault)
    monkeypatch.setattr(Vault, "store", {})
    assert fsspec.get_filesystem_class("vault") is Vault
    return f"vault:/{tmp_path}"


def row(text):
    return str(text).encode().ljust(8)


class Guard(CommitGuard):
    def __init__(self):
        self.answers = []

    def before_publish(self, store):
        if self.answers:
            self.answers.pop(0)()


def provider_with(url, *plugins, guard=None):
    registry = ProviderRegistry([FILES, *(Plugin(type(p).__name__, p, "vault-fs", "1") for p in plugins)])
    conf = StateStoreConf.parse({"spark.holdfast.providerClass": "files"})
    return create_and_init(
        StateStoreId(url, 0, 0), "k string", "v string", None, conf, {}, guard or Guard(), registry=registry
    )


def commit(provider, version, text):
    with provider.get_store(version) as store:
        store.put(row("x"), row(text))
        return store.commit()


def test_without_it_nothing_is_written(url):
    with pytest.raises(UnsupportedOperation, match="no atomic way is known to write to vault"):
        commit(provider_with(url), 0, "a")
    assert Vault.store == {}


def test_with_it_a_query_runs(url):
    provider = provider_with(url, VaultPlugin())
    for version in range(3):
        commit(provider, version, version)
    commit(provider, 0, "again")
    names = sorted(path.rpartition("/")[2] for path in Vault.store if "_metadata" not in path)
    assert names == ["1.delta", "2.delta.aside", "3.delta.aside"]
    with provider_with(url, VaultPlugin()).get_read_store(1) as reader:
        assert reader.get(row("x")) == row("again")


def test_its_create_keeps_late_writers_off(url):
    guard, other = Guard(), provider_with(url, VaultPlugin())
    provider = provider_with(url, VaultPlugin(), guard=guard)

    def refuse():
        raise Fenced("another attempt owns version 1")

    guard.answers = [lambda: commit(other, 0, "first"), refuse]
    with pytest.raises(Fenced):
        commit(provider, 0, "late")
    with provider.get_read_store(1) as reader:
        assert reader.get(row("x")) == row("first")


def test_other_filesystems_are_as_before(tmp_path):
    assert commit(provider_with(str(tmp_path), VaultPlugin()), 0, "a") == 1
    assert (tmp_path / "0" / "0" / "1.delta").exists()


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        ([VaultPlugin(), SecondVaultPlugin()], "VaultPlugin.* and .*SecondVaultPlugin.* both adapt .* vault"),
        ([FailingPlugin()], "FailingPlugin.* RuntimeError: no licence"),
        ([WrongPlugin()], "WrongPlugin.* returned str"),
    ],
)
def test_what_cannot_be_relied_on_is_refused(url, plugins, said):
    with pytest.raises(BrokenPlugin, match=said):
        provider_with(url, *plugins)
