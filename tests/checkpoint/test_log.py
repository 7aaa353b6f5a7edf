"""The log of one store: chains, damage, catching up, setting aside, cleaning."""

import logging
import re
import threading

import pytest

from holdfast.checkpoint import loading
from holdfast.checkpoint.chain import Chain, Route
from holdfast.checkpoint.log import CheckpointLog
from holdfast.checkpoint.storage import Folder
from holdfast.errors import CorruptState, Fenced, MissingVersion


def row(text):
    return text.encode().ljust(8)


@pytest.fixture
def folder(tmp_path):
    return Folder.open(str(tmp_path / "0" / "0"))


@pytest.fixture
def log(folder):
    return CheckpointLog(folder, "lz4")


def nobody():
    pass


def state(pieces):
    pairs = {}
    for piece in pieces:
        if piece.is_snapshot:
            pairs = {}
        pairs.update(zip(piece.keys, piece.values, strict=True))
        pairs = {key: value for key, value in pairs.items() if value is not None}
    return pairs


def fill(log, versions):
    """Version v has the keys 1 to v, each with the version that made it."""
    for version in range(1, versions + 1):
        log.append(version, {row(str(version)): row(f"v{version}")}, None, nobody)


def expected(version):
    return {row(str(v)): row(f"v{v}") for v in range(1, version + 1)}


# Which files make a version


def test_routes_go_from_the_newest_snapshot_to_none():
    chain = Chain.of(
        ["1.delta", "2.delta", "3.delta", "2.snapshot", "4.delta", "_metadata", "9.zip", "006.delta", "5.delta.x"]
    )
    assert list(chain.routes(4, "here")) == [Route(2, range(3, 5)), Route(None, range(1, 5))]
    assert list(chain.routes(2, "here")) == [Route(2, range(3, 3)), Route(None, range(1, 3))]
    assert list(chain.routes(1, "here")) == [Route(None, range(1, 2))]


def test_route_names_are_in_order():
    assert Route(2, range(3, 5)).names == ["2.snapshot", "3.delta", "4.delta"]


@pytest.mark.parametrize(
    ("names", "version", "said"),
    [
        ([], 1, "version 1 of here cannot be loaded from version 0: 1.delta is missing; there is no version yet"),
        (["1.delta", "3.delta"], 3, "2.delta is missing; the newest version there is 3"),
        (["5.snapshot", "7.delta"], 7, "from snapshot 5: 6.delta is missing"),
        (["5.snapshot"], 4, "1.delta is missing"),
        (["1.delta"], 2, "2.delta is missing; the newest version there is 1"),
    ],
)
def test_a_hole_names_the_missing_file(names, version, said):
    with pytest.raises(MissingVersion, match=said):
        list(Chain.of(names).routes(version, "here"))


def test_what_is_set_aside_for_a_version_made_again():
    chain = Chain.of(["1.delta", "2.delta", "3.delta", "4.delta", "2.snapshot", "4.snapshot", "3.delta.aside"])
    assert chain.above(1) == ["4.snapshot", "2.snapshot", "4.delta", "3.delta"]
    assert chain.above(3) == ["4.snapshot"]
    assert chain.above(4) == []


def test_what_is_obsolete():
    names = [f"{v}.delta" for v in range(1, 13)] + ["3.snapshot", "6.snapshot", "10.snapshot", "2.delta.aside"]
    chain = Chain.of(names)
    assert chain.obsolete(2) == []
    assert chain.obsolete(9) == ["3.snapshot", *[f"{v}.delta" for v in range(1, 6)], "2.delta.aside"]
    for retained in range(9, 13):
        left = Chain.of(set(names) - set(chain.obsolete(9)))
        assert next(left.routes(retained, "here"))


# Reading and writing


def test_versions_are_read_back(log, folder):
    fill(log, 20)
    for version in range(1, 21):
        assert state(CheckpointLog(folder, "zstd").load(version)) == expected(version)


def test_snapshots_shorten_the_way(log, folder):
    fill(log, 5)
    log.write_snapshot(4, expected(4).items())
    pieces = list(log.load(5))
    assert [(piece.version, piece.is_snapshot) for piece in pieces] == [(4, True), (5, False)]
    assert state(pieces) == expected(5)
    assert log.shortest_route(5).deltas == range(5, 6)


def test_a_state_that_begins_later(log):
    log.start_at(7)
    log.append(8, {row("a"): row("1")}, None, nobody)
    assert state(log.load(7)) == {}
    assert state(log.load(8)) == {row("a"): row("1")}
    with pytest.raises(MissingVersion):
        log.load(6)


def test_a_missing_delta_is_a_hole_and_not_empty(log, folder):
    fill(log, 5)
    folder.remove(["3.delta"])
    with pytest.raises(MissingVersion, match=r"3\.delta is missing"):
        log.load(5)


def test_the_identity_is_the_contents(log, folder):
    first = log.append(1, {row("a"): row("1")}, None, nobody)
    assert log.identity(1) == first
    second = log.append(1, {row("a"): row("2")}, None, nobody)
    assert log.identity(1) == second != first
    assert [piece.identity for piece in log.load(1)] == [second]
    assert log.identity(2) is None


def test_a_delta_on_another_version_than_it_was_made_on(log, folder):
    first = log.append(1, {row("a"): row("1")}, None, nobody)
    second = log.append(2, {}, first, nobody)
    log.append(3, {}, second, nobody)
    assert state(log.load(3)) == {row("a"): row("1")}
    other = CheckpointLog(Folder.open(f"{folder.shown}-other"), "lz4")
    other_first = other.append(1, {row("a"): row("2")}, None, nobody)
    assert other.append(2, {}, other_first, nobody) != second, "equal changes on different versions are not equal"
    folder.publish("1.delta", other.folder.read("1.delta"))
    with pytest.raises(CorruptState, match=r"2\.delta was made on another version"):
        list(log.load(3))


def test_a_refused_delta_leaves_everything_as_it_was(log, folder):
    fill(log, 4)
    before = folder.list()

    def refuse():
        raise Fenced("not you")

    with pytest.raises(Fenced):
        log.append(2, {row("z"): row("z")}, None, refuse)
    assert folder.list() == before
    assert state(log.load(4)) == expected(4)


def test_a_future_that_did_not_happen_is_set_aside_and_kept(log, folder, caplog):
    fill(log, 6)
    log.write_snapshot(5, expected(5).items())
    CheckpointLog(folder, "lz4").append(4, {row("new"): row("4")}, None, nobody)
    assert sorted(folder.list()) == [
        "1.delta", "2.delta", "3.delta", "4.delta", "5.delta.aside", "5.snapshot.aside", "6.delta.aside"
    ]  # fmt: skip
    assert "Setting aside" in caplog.text
    fresh = CheckpointLog(folder, "lz4")
    assert state(fresh.load(4)) == {**expected(3), row("new"): row("4")}
    with pytest.raises(MissingVersion):
        fresh.load(5)


def test_cleaning_keeps_every_retained_version(log, folder):
    fill(log, 12)
    for version in (3, 6, 10):
        log.write_snapshot(version, expected(version).items())
    removed = log.clean(9)
    assert "6.snapshot" not in removed
    assert "5.delta" in removed
    for version in range(9, 13):
        assert state(CheckpointLog(folder, "lz4").load(version)) == expected(version)
    with pytest.raises(MissingVersion):
        log.load(2)


# Damage


def damage(folder, name):
    data = bytearray(folder.read(name))
    data[17] ^= 1  # in the checksum: some flips elsewhere in compressed data change nothing
    folder.publish(name, bytes(data))


def test_a_damaged_snapshot_is_replaced_by_an_older_one(log, folder, caplog):
    fill(log, 8)
    log.write_snapshot(3, expected(3).items())
    log.write_snapshot(6, expected(6).items())
    damage(folder, "6.snapshot")
    assert state(log.load(8)) == expected(8)
    assert log.snapshots_repaired == 1
    assert "Snapshot 6" in caplog.text
    damage(folder, "3.snapshot")
    assert state(log.load(8)) == expected(8), "without any snapshot the deltas from 1 do"


def test_a_damaged_snapshot_that_nothing_replaces(log, folder):
    fill(log, 8)
    log.write_snapshot(6, expected(6).items())
    folder.remove(["2.delta"])
    damage(folder, "6.snapshot")
    with pytest.raises(CorruptState, match=r"6\.snapshot.*no older snapshot"):
        log.load(8)


def test_a_damaged_delta_is_named(log, folder):
    fill(log, 5)
    damage(folder, "4.delta")
    with pytest.raises(CorruptState, match=r"0/0/4\.delta"):
        list(log.load(5))
    assert state(log.load(3)) == expected(3)


@pytest.mark.parametrize(
    ("slow", "report"),
    [("41.snapshot", "reading 41.snapshot"), ("45.delta", "0 of 39 deltas"), ("65.delta", "16 of 39 deltas")],
)
def test_a_load_that_takes_long_says_where_it_is(log, folder, monkeypatch, caplog, slow, report):
    fill(log, 80)
    log.write_snapshot(41, expected(41).items())
    said = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record):
            if re.fullmatch(f"Loading {re.escape(folder.shown)}: {report}, \\d+ s", record.getMessage()):
                said.set()

    def read(self, name, read=Folder.read):
        if name == slow:
            assert said.wait(30), "the file is not read before it was reported"
        return read(self, name)

    monkeypatch.setattr(Folder, "read", read)
    monkeypatch.setattr(loading, "FIRST_REPORT", 0.01)
    monkeypatch.setattr(loading, "NEXT_REPORTS", 0.01)
    loading.log.addHandler(listener := Listener())
    try:
        with caplog.at_level(logging.INFO, loading.log.name):
            assert state(log.load(80)) == expected(80)
    finally:
        loading.log.removeHandler(listener)
    for thread in threading.enumerate():
        if thread.name == "holdfast-loading":
            thread.join(30)
            assert not thread.is_alive()
