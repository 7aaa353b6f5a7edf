"""Checkpoints on a real HDFS: the storage tests, and the whole kit for the default provider."""

import os
import signal

import pytest
import test_paused_writer
import test_storage
from hdfs_server import HDFS
from places import Injected, Place, in_child

from holdfast.checkpoint.storage import Folder, MissingFile
from holdfast.conformance import Backend, ProviderContract
from holdfast.contract.faults import watch_fault_points
from holdfast.errors import Unavailable

pytestmark = HDFS


@pytest.fixture
def place(hdfs_server, tmp_path):
    return Place("hdfs", hdfs_server.url(tmp_path.parent.name, tmp_path.name))


class TestFilesOnHdfs(test_storage.TestFiles):
    @pytest.mark.parametrize("name", [*(name for name in test_storage.NAMES if ":" not in name), "a;b"])
    def test_names_are_literal(self, folder, name):
        super().test_names_are_literal(folder, name)

    def test_names_that_hdfs_refuses(self, folder):
        with pytest.raises(Unavailable, match="Invalid path name") as caught:
            folder.publish("a:b", b"x")
        assert "org.apache.hadoop.hdfs.server" not in str(caught.value), "no stack of the server's in the message"
        assert folder.list() == {}

    def test_several_blocks(self, folder):
        content = os.urandom(5 * 2**20 + 12_345)
        folder.publish("1.snapshot", content)
        assert folder.list() == {"1.snapshot": len(content)}
        assert folder.read("1.snapshot") == content

    def test_file_in_place_of_a_folder(self, folder):
        folder.publish("state", b"in the way")
        inside = folder.child("state")
        with pytest.raises(Unavailable, match="not a directory"):
            inside.publish("1.delta", b"x")
        with pytest.raises(Unavailable, match="not a folder"):
            inside.list()
        with pytest.raises(MissingFile):
            inside.read("1.delta")
        assert folder.read("state") == b"in the way"

    def test_folder_in_place_of_a_file(self, folder):
        folder.child("1.delta").publish("x", b"x")
        folder.child("1.delta").remove(["x"])
        with pytest.raises(Unavailable, match="1.delta"):
            folder.publish("1.delta", b"x")
        assert folder.folders() == ["1.delta"], "not even an empty one is replaced"
        assert folder.list() == {}

    def test_permissions(self, hdfs_server, tmp_path, place):
        place.open().publish("1.delta", b"old")

        def child():
            os.environ["HADOOP_USER_NAME"] = "somebody-else"
            folder = Folder.open(place.url, {"dfs.client.failover.random.order": "false"})
            with pytest.raises(Unavailable, match="Permission denied.*somebody-else") as caught:
                folder.publish("1.delta", b"new")
            assert not isinstance(caught.value, MissingFile)

        assert in_child(child) == 0
        assert place.open().list() == {"1.delta": 3}


class TestPublishingOnHdfs(test_storage.TestPublishing):
    # These are about object stores.
    test_large_content_is_one_upload = None
    test_one_get_per_file = None
    test_one_put_and_nothing_else = None

    def test_overwriting_never_removes_first(self, folder):
        folder.publish("1.delta", b"old")
        points = []
        with watch_fault_points(points.append):
            folder.publish("1.delta", b"new")
        assert "publish.replacing" not in points

    def test_an_overwrite_that_fails_leaves_the_old_file(self, folder, monkeypatch):
        folder.publish("1.delta", b"old")

        def fails(source, target, **options):
            raise Injected("the NameNode is busy")

        monkeypatch.setattr(folder._filesystem.fs, "mv", fails)
        with pytest.raises(Unavailable, match="busy"):
            folder.publish("1.delta", b"new")
        assert folder.list() == {"1.delta": 3}
        assert folder.read("1.delta") == b"old"

    @pytest.mark.parametrize("before", [None, b"old"])
    def test_killed_in_the_middle_of_a_file(self, folder, before):
        if before is not None:
            folder.publish("1.delta", before)
        content = os.urandom(3 * 2**20)

        def child():
            fs = folder._filesystem.fs

            def half(path, data):
                file = fs.open(path, "wb")
                file.write(data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)

            fs.pipe_file = half
            folder.publish("1.delta", content)

        assert in_child(child) == -signal.SIGKILL
        left = folder.list()
        assert left.pop("1.delta", None) == (None if before is None else len(before))
        assert len(left) == 1
        assert all(name.startswith(".") for name in left), "Spark would read it"
        folder.publish("1.delta", content)
        assert folder.read("1.delta") == content
        folder.remove(left)
        assert [*folder.list()] == ["1.delta"]


class TestPausedWriterOnHdfs:
    @pytest.fixture
    def backend(self, place):
        return Backend("files", place.url)

    test_it_is_fenced = staticmethod(test_paused_writer.test_it_is_fenced)


class TestFilesProviderOnHdfs(ProviderContract):
    @pytest.fixture
    def backend(self, place):
        return Backend("files", place.url)
