"""One folder of a checkpoint, on every kind of filesystem."""

import contextlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from places import Injected, fault_points_of, in_child, no_objection

from holdfast.checkpoint.storage import Folder, MissingFile
from holdfast.contract.faults import watch_fault_points
from holdfast.errors import Fenced, InvalidRequest, MissingVersion, Unavailable, UnsupportedOperation

NAMES = ["with space", "ünï-漢字", "100%", "%41%20", "a+b&c=d", "a#b", "a?b", "[x]*{y}", "~", ".hidden", "file:x"]


REGISTERED = sys.modules["fsspec.registry"]._registry  # the name in fsspec itself is a read-only view


class TestFiles:
    def test_round_trip(self, folder):
        for size in (0, 1, 100_000):
            folder.publish("1.delta", os.urandom(size) if size else b"")
            assert len(folder.read("1.delta")) == size
        content = bytes(range(256)) * 10
        folder.publish("1.delta", content)
        assert folder.read("1.delta") == content

    def test_overwriting_shows_at_once_to_others(self, place):
        one, other = place.open(), place.open()
        for content in (b"first", b"second, longer", b"3"):
            one.publish("1.delta", content)
            assert other.read("1.delta") == content
            assert other.list() == {"1.delta": len(content)}

    def test_list_has_names_and_sizes_of_files_only(self, folder):
        folder.publish("1.delta", b"abc")
        folder.publish("2.delta", b"")
        folder.child("right", "deeper").publish("7.delta", b"x")
        assert folder.list() == {"1.delta": 3, "2.delta": 0}
        assert folder.folders() == ["right"]
        assert folder.child("right").folders() == ["deeper"]
        assert folder.child("right").list() == {}

    def test_a_folder_that_is_not_there_is_empty(self, folder):
        assert folder.list() == {}
        assert folder.folders() == []
        assert folder.child("a", "b").list() == {}

    def test_the_beginning_of_a_name_is_not_a_folder(self, folder):
        folder.child("10").publish("1.delta", b"x")
        assert folder.child("1").list() == {}

    def test_missing_file(self, folder):
        for prepare in (lambda: None, lambda: folder.publish("2.delta", b"x")):
            prepare()
            with pytest.raises(MissingFile, match="1.delta") as caught:
                folder.read("1.delta")
            assert folder.shown in str(caught.value)
            assert isinstance(caught.value, MissingVersion)
            assert isinstance(caught.value.__cause__, FileNotFoundError)

    def test_many_files_in_order(self, folder):
        names = [f"{number}.delta" for number in range(40)]
        for name in names:
            folder.publish(name, name.encode() * 50)
        assert folder.read_many(names[::-1]) == [name.encode() * 50 for name in names[::-1]]
        assert folder.read_many([]) == []
        assert len(folder.list()) == 40

    def test_one_missing_of_many(self, folder):
        folder.publish("1.delta", b"x")
        with pytest.raises(MissingFile, match="2.delta"):
            folder.read_many(["1.delta", "2.delta", "1.delta"])

    def test_reads_overlap(self, folder, monkeypatch):
        names = ["1", "2", "3", "4"]
        for name in names:
            folder.publish(name, name.encode())
        together = threading.Barrier(4, timeout=20)
        original = folder._filesystem.fs.cat_file

        def waits(path):
            together.wait()
            return original(path)

        monkeypatch.setattr(folder._filesystem.fs, "cat_file", waits)
        assert folder.read_many(names) == [b"1", b"2", b"3", b"4"]

    def test_remove(self, folder):
        for name in ("1.delta", "2.delta", "3.delta"):
            folder.publish(name, b"x")
        folder.remove(["1.delta", "2.delta", "never.there"])
        folder.remove(["1.delta"])
        folder.remove([])
        assert list(folder.list()) == ["3.delta"]
        folder.child("not", "there").remove(["1.delta", "2.delta"])

    def test_set_aside(self, folder):
        for number, expected in enumerate(["12.delta.aside", "12.delta.aside2", "12.delta.aside3"]):
            folder.publish("12.delta", b"%d" % number)
            assert folder.set_aside("12.delta") == expected
            assert folder.read(expected) == b"%d" % number
        assert set(folder.list()) == {"12.delta.aside", "12.delta.aside2", "12.delta.aside3"}
        with pytest.raises(MissingFile, match="12.delta"):
            folder.set_aside("12.delta")

    @pytest.mark.parametrize("name", NAMES)
    def test_names_are_literal(self, folder, name):
        inside = folder.child(name)
        inside.publish(name, b"content")
        inside.publish(name, b"new content")
        assert inside.read(name) == b"new content"
        assert inside.list() == {name: 11}
        assert folder.folders() == [name]
        assert inside.read_many([name, name]) == [b"new content"] * 2
        aside = inside.set_aside(name)
        assert inside.list() == {aside: 11}
        inside.remove([aside])
        assert inside.list() == {}

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0b"])
    def test_names_that_reach_elsewhere_are_refused(self, folder, name):
        for call in (folder.child, folder.read, lambda bad: folder.publish(bad, b""), lambda bad: folder.remove([bad])):
            with pytest.raises(InvalidRequest, match="one segment"):
                call(name)

    def test_threads_share_a_folder(self, folder):
        errors = []

        def work(number):
            try:
                for turn in range(5):
                    folder.publish(f"{number}", b"%d" % turn)
                    assert folder.read(f"{number}") == b"%d" % turn
                    assert f"{number}" in folder.list()
                folder.remove([f"{number}"])
            except BaseException as error:  # noqa: BLE001 -- shown by the assertion below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert folder.list() == {}

    def test_goes_on_after_a_fork(self, folder, place):
        folder.publish("1.delta", b"parent")

        def child():
            assert folder.read("1.delta") == b"parent"
            folder.publish("2.delta", b"child")
            assert folder.list() == {"1.delta": 6, "2.delta": 5}

        assert in_child(child) == 0
        assert folder.read("1.delta") == b"parent"
        if place.kind != "memory":
            assert folder.read("2.delta") == b"child"


class TestPublishing:
    def test_asks_when_only_the_visible_step_is_left(self, folder):
        folder.publish("1.delta", b"old")
        seen = []
        folder.publish("1.delta", b"new", ask=lambda: seen.append(folder.read("1.delta")))
        assert seen == [b"old", b"old"], "once more, because there is a file already"
        assert folder.read("1.delta") == b"new"
        folder.publish("2.delta", b"new", ask=lambda: seen.append("2.delta" in folder.list()))
        assert seen[2:] == [False]

    @pytest.mark.parametrize("refusal", [Fenced("too late"), Unavailable("no driver"), OSError("its own"), KeyError(1)])
    def test_refused_leaves_nothing(self, folder, refusal):
        asked = []

        def refuse():
            asked.append(1)
            raise refusal

        with pytest.raises(type(refusal)) as caught:
            folder.publish("1.delta", b"new", ask=refuse)
        assert caught.value is refusal
        assert folder.list() == {}
        assert asked == [1], "a refusal is not asked for again"
        folder.publish("1.delta", b"old")
        with pytest.raises(type(refusal)):
            folder.publish("1.delta", b"new", ask=refuse)
        assert folder.list() == {"1.delta": 3}
        assert folder.read("1.delta") == b"old"

    @pytest.mark.parametrize("ask", [None, no_objection])
    def test_error_at_every_fault_point(self, folder, ask):
        points = fault_points_of(lambda: folder.publish("0.delta", b"x", ask))
        assert {"publish.written", "publish.allowed", "publish.visible"} <= set(points)
        for before in (None, b"old"):
            for point in points:
                folder.remove(folder.list())
                if before is not None:
                    folder.publish("1.delta", before)

                def fail(name, point=point):
                    if name == point:
                        raise Injected(name)

                with watch_fault_points(fail), pytest.raises(Injected):
                    folder.publish("1.delta", b"new", ask)
                expected = b"new" if point == "publish.visible" else before
                assert folder.list() == ({} if expected is None else {"1.delta": 3})
                assert expected is None or folder.read("1.delta") == expected
                folder.publish("1.delta", b"again")
                assert folder.read("1.delta") == b"again"

    @pytest.mark.parametrize("ask", [None, no_objection])
    def test_crash_at_every_fault_point(self, folder, place, ask):
        if place.kind == "memory":
            pytest.skip("nothing of it survives a crash")
        folder.publish("1.delta", b"old")
        points = fault_points_of(lambda: folder.publish("1.delta", b"old", ask))
        assert ("publish.exists" in points) == (ask is not None)
        for point in points:
            folder.publish("1.delta", b"old")

            def crash(name, point=point):
                if name == point:
                    os._exit(7)

            def child(crash=crash):
                with watch_fault_points(crash):
                    folder.publish("1.delta", b"new", ask)

            assert in_child(child) == 7
            assert folder.read("1.delta") == (b"new" if point == "publish.visible" else b"old")
            left = set(folder.list()) - {"1.delta"}
            assert all(name.startswith(".") for name in left), "Spark would read it"
            folder.publish("1.delta", b"again")
            assert folder.read("1.delta") == b"again"

    def test_what_another_attempt_wrote_is_not_overwritten_without_asking_again(self, folder):
        answers = ["yes", Fenced("another attempt owns this version")]

        def ask():
            if isinstance(answer := answers.pop(0), Fenced):
                raise answer
            folder.publish("1.delta", b"theirs")

        with pytest.raises(Fenced):
            folder.publish("1.delta", b"ours", ask)
        assert folder.list() == {"1.delta": 6}
        assert folder.read("1.delta") == b"theirs"

    def test_one_of_many_creates(self, folder):
        """Whoever comes second is told so, whatever the order."""
        writers, rounds = 4, 8
        together = threading.Barrier(writers, timeout=60)
        wrong = []

        def write(number, turn):
            allowed = iter([True])

            def ask():
                if not next(allowed, False):
                    raise Fenced("somebody else was first")

            together.wait()
            try:
                folder.publish(f"{turn}.delta", b"%d" % number, ask)
            except Fenced:
                return 0
            return 1

        def work(number):
            try:
                return [write(number, turn) for turn in range(rounds)]
            except BaseException as error:
                wrong.append(error)
                together.abort()
                raise

        with ThreadPoolExecutor(writers) as pool:
            created = [*pool.map(work, range(writers))]
        assert wrong == []
        assert [sum(each) for each in zip(*created, strict=True)] == [1] * rounds

    def test_crash_while_setting_aside(self, folder):
        folder.publish("1.delta", b"content")

        def fail(name):
            raise Injected(name)

        with watch_fault_points(fail), contextlib.suppress(Injected):
            folder.set_aside("1.delta")
        kept = folder.read_many([*folder.list()])
        assert kept
        assert set(kept) == {b"content"}

    @pytest.mark.parametrize("ask", [None, no_objection])
    def test_one_put_and_nothing_else(self, proxied, ask):
        folder, proxy, _ = proxied
        for number, content in enumerate((b"first", b"second")):
            proxy.asked.clear()
            folder.publish("1.delta" if ask is None else f"{number}.delta", content, ask)
            assert len(proxy.asked) == 1, proxy.asked
            method, path = proxy.asked[0]
            assert method == "PUT" or (method == "POST" and path.startswith("/upload/"))

    def test_one_get_per_file(self, proxied):
        folder, proxy, _ = proxied
        folder.publish("1.delta", b"x")
        folder.publish("2.delta", b"y")
        proxy.asked.clear()
        assert folder.read_many(["1.delta", "2.delta"]) == [b"x", b"y"]
        assert [method for method, _ in proxy.asked] == ["GET", "GET"]

    def test_large_content_is_one_upload(self, remote, monkeypatch):
        folder = remote.open()
        fs = folder._filesystem.fs
        original = fs.pipe_file
        small = 5 * 2**20 if remote.kind != "gcs" else 2**20
        monkeypatch.setattr(fs, "pipe_file", lambda path, data, **more: original(path, data, chunksize=small, **more))
        content = os.urandom(2 * small + 12_345)
        folder.publish("1.snapshot", content)
        assert folder.list() == {"1.snapshot": len(content)}
        assert folder.read("1.snapshot") == content
        asked = []
        folder.publish("1.delta", content, lambda: asked.append(1))
        folder.publish("1.delta", content[:-1], lambda: asked.append(2))
        assert folder.read("1.delta") == content[:-1]
        # The imitation of GCS ignores conditions on uploads in several parts.
        assert asked == ([1, 2] if remote.kind == "gcs" else [1, 2, 2])


class Moving(MemoryFileSystem):
    """A filesystem with a rename of its own, which does not replace."""

    protocol = "moving"
    store = {}  # noqa: RUF012 -- as its base has it
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("moving://").strip("/")

    def mv(self, source, target):
        if target in self.store:
            raise FileExistsError(target)
        self.store[target] = self.store.pop(source)


class Replacing(Moving):
    """A filesystem whose rename replaces if told to, as HDFS's does."""

    protocol = "replacing"

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("replacing://").strip("/")

    def mv(self, source, target, **options):
        if target in self.store and not options.get("overwrite"):
            raise FileExistsError(target)
        self.store[target] = self.store.pop(source)


class Copying(MemoryFileSystem):
    """A filesystem whose rename is fsspec's: a copy."""

    protocol = "copying"


class TestOtherFilesystems:
    @pytest.fixture(params=[Moving, Replacing])
    def renaming(self, request, tmp_path, monkeypatch):
        monkeypatch.setitem(REGISTERED, request.param.protocol, request.param)
        return Folder.open(f"{request.param.protocol}:/{tmp_path}")

    def test_publish_and_overwrite(self, renaming):
        for content in (b"first", b"second"):
            renaming.publish("1.delta", content)
            assert renaming.read("1.delta") == content
            assert list(renaming.list()) == ["1.delta"]
        assert renaming.set_aside("1.delta") == "1.delta.aside"
        assert list(renaming.list()) == ["1.delta.aside"]

    @pytest.mark.parametrize("ask", [None, no_objection])
    def test_error_at_every_fault_point(self, renaming, ask):
        renaming.publish("1.delta", b"old")
        points = fault_points_of(lambda: renaming.publish("1.delta", b"old", ask))
        assert ("publish.exists" in points) == (ask is not None)
        for point in dict.fromkeys(points):
            if point == "publish.replacing":
                continue  # the one place where the old file is gone, and the version missing

            def fail(name, point=point):
                if name == point:
                    raise Injected(name)

            with watch_fault_points(fail), pytest.raises(Injected):
                renaming.publish("1.delta", b"new", ask)
            assert renaming.read("1.delta") == (b"new" if point == "publish.visible" else b"old")
            assert list(renaming.list()) == ["1.delta"]
            renaming.publish("1.delta", b"old")

    def test_refused_leaves_nothing(self, renaming):
        def refuse():
            raise Fenced("no")

        with pytest.raises(Fenced):
            renaming.publish("1.delta", b"new", refuse)
        assert renaming.list() == {}

    def test_without_an_atomic_rename(self, monkeypatch):
        monkeypatch.setitem(REGISTERED, "copying", Copying)
        folder = Folder.open("copying://x/y")
        assert folder.list() == {}
        with pytest.raises(UnsupportedOperation, match="copying"):
            folder.publish("1.delta", b"x")
