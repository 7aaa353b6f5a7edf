import json

import pytest
from click.testing import CliRunner

from holdfast.cli import main as cli
from holdfast.plugins import registry
from holdfast.plugins.discovery import Plugin, installed_plugins


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(cli.main, arguments)


def test_error_is_a_message_not_a_stack_trace(run):
    shown = run("demo", "--provider", "memry")
    assert shown.exit_code == 1
    assert "did you mean memory?" in shown.output
    assert "Traceback" not in shown.output


def test_providers(run):
    shown = run("providers")
    assert shown.exit_code == 0
    assert "holdfast_memory.MemoryStateStoreProvider" in shown.output
    described = json.loads(run("providers", "--json").stdout)
    memory = next(provider for provider in described["providers"] if provider["name"] == "memory")
    assert memory["distribution"] == "holdfast"
    assert memory["capabilities"] == ["LATE_START", "PREFIX_SCAN", "RANGE_SCAN", "VOLATILE"]
    assert described["problems"] == []


def test_providers_shows_what_is_broken_and_the_rest(run, monkeypatch):
    broken = Plugin("mine", object(), "acme-stores", "0.3")
    found = registry.ProviderRegistry([*installed_plugins(), broken])
    monkeypatch.setattr(registry, "installed_providers", lambda: found)
    shown = run("providers")
    assert shown.exit_code == 1
    assert "holdfast_memory.MemoryStateStoreProvider" in shown.output
    assert "BrokenPlugin: plug-in 'mine' of acme-stores 0.3 has no hook" in shown.stderr


def test_version(run):
    assert run("--version").output.startswith("holdfast, version ")
