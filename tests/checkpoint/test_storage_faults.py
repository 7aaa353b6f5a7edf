"""What goes wrong on disks and servers: retried or not, said clearly, and without a secret."""

import asyncio
import errno
import os
import resource
import traceback
from types import SimpleNamespace
from typing import ClassVar

import fsspec
import pytest
from places import make_place, no_objection, no_sleep
from servers import BUCKET, Proxy

from holdfast.checkpoint.failures import is_taken, is_transient, is_unknown_condition
from holdfast.checkpoint.filesystems import filesystem_class
from holdfast.checkpoint.storage import Folder, MissingFile, Patience
from holdfast.errors import Fenced, InvalidSetting, Unavailable

# What a server in trouble says.
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
DENIED = {
    "s3": (403, b"<Error><Code>AccessDenied</Code><Message>Not for you</Message></Error>"),
    "gcs": (403, b'{"error": {"message": "Not for you"}}'),
}


class TestServersInTrouble:
    @pytest.mark.parametrize("trouble", [(503, SLOW_DOWN), (503, b""), (500, b""), (429, b""), (502, b"oops"), "reset"])
    def test_transient_errors_are_retried(self, proxied, trouble, request, monkeypatch):
        folder, proxy, pauses = proxied
        if "gcs" in request.node.callspec.id:
            monkeypatch.setattr("gcsfs.retry.asyncio", SimpleNamespace(sleep=lambda seconds: asyncio.sleep(0)))
        proxy.answers += [trouble, trouble]
        folder.publish("1.delta", b"content")
        assert len(proxy.asked) == 3
        proxy.answers += [trouble]
        assert folder.read("1.delta") == b"content"
        proxy.answers += [trouble]
        assert folder.list() == {"1.delta": 7}
        # gcsfs makes its pauses by itself, and aiohttp at once uses another connection for one that was reset.
        if "gcs" not in request.node.callspec.id and trouble != "reset":
            assert len(pauses) == 4
            assert 0 < pauses[0] < pauses[1] < 1

    def test_an_answer_that_got_lost(self, proxied):
        folder, proxy, _ = proxied
        proxy.answers += ["lost"]
        folder.publish("1.delta", b"content")
        assert folder.read("1.delta") == b"content"
        proxy.answers += ["lost"]
        folder.remove(["1.delta"])
        assert folder.list() == {}

    def test_asks_again_before_each_attempt(self, request, tmp_path):
        place = make_place("s3", request, tmp_path)
        proxy = Proxy(place.server.endpoint)
        folder = Folder.open(place.url, place.server.through(proxy.endpoint).options, patience=Patience(sleep=no_sleep))
        answers = [None, Fenced("another attempt owns this version")]

        def ask():
            if (answer := answers.pop(0)) is not None:
                raise answer

        proxy.answers += [(503, SLOW_DOWN)]
        with pytest.raises(Fenced):
            folder.publish("1.delta", b"content", ask)
        assert len(proxy.asked) == 1
        proxy.close()

    def test_gives_up(self, request, tmp_path):
        place = make_place("s3", request, tmp_path)
        proxy = Proxy(place.server.endpoint)
        pauses = []
        folder = Folder.open(
            place.url, place.server.through(proxy.endpoint).options, patience=Patience(sleep=pauses.append)
        )
        proxy.answers += [(503, SLOW_DOWN)] * 50
        with pytest.raises(Unavailable, match="reduce your request rate"):
            folder.publish("1.delta", b"content")
        assert len(proxy.asked) == 5, "no retries within retries"
        assert len(pauses) == 4
        assert 5 < sum(pauses) < 12
        proxy.close()

    def test_permanent_errors_are_not_retried(self, proxied, request):
        folder, proxy, pauses = proxied
        denied = DENIED["gcs" if "gcs" in request.node.callspec.id else "s3"]
        for call in (lambda: folder.publish("1.delta", b"x"), lambda: folder.read("1.delta"), folder.list):
            proxy.asked.clear()
            proxy.answers += [denied]
            with pytest.raises(Unavailable, match="Not for you") as caught:
                call()
            assert not isinstance(caught.value, MissingFile)
            assert folder.shown in str(caught.value)
            assert len(proxy.asked) == 1
        assert pauses == []

    def test_no_such_bucket(self, remote):
        if remote.kind == "seaweedfs":
            pytest.skip("it makes the bucket")
        folder = Folder.open(remote.url.replace(BUCKET, "no-such-bucket-at-all"), remote.options)
        with pytest.raises(Unavailable, match="no-such-bucket-at-all"):
            folder.publish("1.delta", b"x")
        with pytest.raises(Unavailable, match="no-such-bucket-at-all"):
            folder.list()

    def test_no_server(self, remote):
        pauses = []
        options = {**remote.options, "endpoint_url": "http://127.0.0.1:1"}
        folder = Folder.open(remote.url, options, patience=Patience(sleep=pauses.append, attempts=2))
        if remote.kind == "gcs":
            pytest.skip("gcsfs retries for half a minute by itself; Patience's bound on time has its own test")
        with pytest.raises(Unavailable, match="127.0.0.1:1"):
            folder.read("1.delta")
        assert len(pauses) == 1


class TestConditions:
    """Writes that only create, on servers that understand them in their own ways, or not at all."""

    @pytest.fixture
    def s3(self, request, tmp_path):
        place = make_place("s3", request, tmp_path)
        proxy = Proxy(place.server.endpoint)
        options = {**place.server.through(proxy.endpoint).options, "default_block_size": 5 * 2**20}
        try:
            yield Folder.open(place.url, options, patience=Patience(sleep=no_sleep)), proxy
        finally:
            proxy.close()

    @pytest.mark.parametrize(
        "refusal",
        [
            b"<Error><Code>PreconditionFailed</Code><Condition>If-None-Match</Condition></Error>",
            b"<Error><Code>PreconditionFailed</Code><Message>It is there</Message></Error>",
            b"",
        ],
    )
    def test_a_file_that_is_there(self, s3, refusal):
        folder, proxy = s3
        asked = []
        proxy.answers += [(412, refusal)]
        folder.publish("1.delta", b"new", lambda: asked.append(len(proxy.asked)))
        assert asked == [0, 1]
        assert folder.read("1.delta") == b"new"

    def test_two_at_once_are_told_to_try_again(self, s3):
        folder, proxy = s3
        asked = []
        conflict = b"<Error><Code>ConditionalRequestConflict</Code><Message>Try again</Message></Error>"
        proxy.answers += [(409, conflict)]
        folder.publish("1.delta", b"new", lambda: asked.append(len(proxy.asked)))
        assert asked == [0, 1]
        assert len(proxy.asked) == 2
        assert folder.read("1.delta") == b"new"

    def test_an_answer_that_got_lost(self, s3):
        folder, proxy = s3
        proxy.answers += ["lost"]
        folder.publish("1.delta", b"content", no_objection)
        assert folder.read("1.delta") == b"content"

    def test_a_server_that_ignores_them(self, s3):
        folder, proxy = s3
        proxy.unheeded.add("if-none-match")
        asked = []
        for content in (b"old", b"new"):
            folder.publish("1.delta", content, lambda: asked.append(1))
            assert folder.read("1.delta") == content
        assert len(asked) == 2, "nobody said that there was a file"

    def test_a_server_that_refuses_them_is_not_bothered_again(self, s3):
        folder, proxy = s3
        refused = b"<Error><Code>NotImplemented</Code><Message>A header is not implemented</Message></Error>"
        proxy.answers += [(501, refused)]
        folder.publish("1.delta", b"old", no_objection)
        for content in (b"new", b"newer"):
            proxy.asked.clear()
            folder.publish("1.delta", content, no_objection)
            assert len(proxy.asked) == 1
            assert folder.read("1.delta") == content

    def test_a_package_that_does_not_know_them(self, s3, monkeypatch):
        folder, _ = s3
        pipe_file = folder._filesystem.fs.pipe_file
        monkeypatch.setattr(folder._filesystem.fs, "pipe_file", lambda path, data: pipe_file(path, data))
        for content in (b"old", b"new"):
            folder.publish("1.delta", content, no_objection)
            assert folder.read("1.delta") == content

    def test_a_parameter_that_botocore_does_not_know(self):
        filesystem_class("s3")
        import botocore.exceptions as boto

        unknown = boto.ParamValidationError(report='Unknown parameter in input: "IfNoneMatch"')
        assert is_unknown_condition(unknown)
        assert not is_unknown_condition(ConnectionResetError())
        assert not is_taken(unknown)

    @pytest.mark.parametrize("reason", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
    def test_a_local_disk_without_hard_links(self, tmp_path, monkeypatch, reason):
        def no_links(*_):
            raise OSError(reason, os.strerror(reason))

        monkeypatch.setattr(os, "link", no_links)
        folder = Folder.open(str(tmp_path))
        for content in (b"old", b"new"):
            folder.publish("1.delta", content, no_objection)
            assert folder.list() == {"1.delta": 3}
            assert folder.read("1.delta") == content


class TestPatience:
    def test_no_further_attempt_after_the_time_is_up(self, tmp_path, monkeypatch):
        now = [0.0]
        folder = Folder.open(f"memory:/{tmp_path}", patience=Patience(sleep=no_sleep, clock=lambda: now[0]))
        calls = []

        def slow(path):
            calls.append(path)
            now[0] += 35
            raise TimeoutError("slow")

        monkeypatch.setattr(folder._filesystem.fs, "cat_file", slow)
        with pytest.raises(Unavailable, match="slow"):
            folder.read("1.delta")
        assert len(calls) == 1

    def test_what_the_libraries_raise(self):
        filesystem_class("gcs")  # the only right way to import gcsfs for the first time
        import aiohttp
        import botocore.exceptions as boto
        import gcsfs.retry
        import requests

        def s3(code, status):
            answer = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
            return boto.ClientError(answer, "PutObject")

        caused = OSError(errno.EBUSY, "busy")
        caused.__cause__ = s3("SlowDown", 503)
        for again in (
            caused,
            s3("RequestTimeout", 400),
            s3("InternalError", 500),
            boto.EndpointConnectionError(endpoint_url="http://x"),
            boto.ReadTimeoutError(endpoint_url="http://x"),
            boto.ConnectionClosedError(endpoint_url="http://x"),
            aiohttp.ServerDisconnectedError(),
            aiohttp.ClientPayloadError(),
            gcsfs.retry.HttpError({"code": 503, "message": "m"}),
            gcsfs.retry.HttpError({"code": "429", "message": "m"}),
            requests.exceptions.ProxyError(),
            ConnectionResetError(),
            TimeoutError(),
            fsspec.asyn.FSTimeoutError(),
            OSError(errno.ESTALE, "stale"),
        ):
            assert is_transient(again), again
        for final in (
            s3("AccessDenied", 403),
            s3("NoSuchBucket", 404),
            s3("InvalidAccessKeyId", 403),
            boto.NoCredentialsError(),
            gcsfs.retry.HttpError({"code": 401, "message": "m"}),
            OSError("Forbidden: b/x"),
            OSError(errno.ENOSPC, "No space left on device"),
            OSError(errno.EDQUOT, "Disk quota exceeded"),
            PermissionError(errno.EACCES, "Permission denied"),
            FileNotFoundError(),
            NotADirectoryError(),
            ValueError("Bad Request"),
        ):
            assert not is_transient(final), final


class TestLocalDisk:
    def test_disk_full(self, tmp_path, monkeypatch):
        folder = Folder.open(str(tmp_path))
        folder.publish("1.delta", b"old")

        def full(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="No space left on device") as caught:
            folder.publish("1.delta", b"new")
        assert caught.value.__cause__.errno == errno.ENOSPC
        monkeypatch.undo()
        assert folder.list() == {"1.delta": 3}
        assert folder.read("1.delta") == b"old"

    def test_write_that_stops_in_the_middle(self, tmp_path):
        folder = Folder.open(str(tmp_path))
        folder.publish("1.delta", b"old")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
        try:
            with pytest.raises(Unavailable, match="File too large"):
                folder.publish("1.delta", b"x" * 2**22)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert folder.list() == {"1.delta": 3}

    def test_file_in_place_of_a_folder(self, tmp_path):
        (tmp_path / "state").write_text("in the way")
        folder = Folder.open(str(tmp_path / "state"))
        for call in (
            lambda: folder.publish("1.delta", b"x"),
            lambda: folder.child("0").publish("1.delta", b"x"),
            lambda: folder.read("1.delta"),
            folder.list,
        ):
            with pytest.raises(Unavailable, match="[Nn]ot a (directory|folder)") as caught:
                call()
            assert "state" in str(caught.value)
        assert (tmp_path / "state").read_text() == "in the way"

    def test_folder_in_place_of_a_file(self, tmp_path):
        folder = Folder.open(str(tmp_path))
        (tmp_path / "1.delta").mkdir()
        for call in (lambda: folder.publish("1.delta", b"x"), lambda: folder.read("1.delta")):
            with pytest.raises(Unavailable, match="1.delta.*Is a directory"):
                call()
        assert os.listdir(tmp_path) == ["1.delta"]

    @pytest.mark.parametrize(("step", "ask"), [("replace", None), ("link", no_objection)])
    def test_everything_is_synced_before_and_after_the_file_has_its_name(self, tmp_path, monkeypatch, step, ask):
        steps = []
        fsync, give_name = os.fsync, getattr(os, step)
        monkeypatch.setattr(os, "fsync", lambda fd: (steps.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
        monkeypatch.setattr(os, step, lambda a, b: (steps.append("named"), give_name(a, b)))
        Folder.open(str(tmp_path / "state" / "0")).publish("1.delta", b"x", ask)
        folders, file, named, folder = steps[:-3], steps[-3], steps[-2], steps[-1]
        assert folders == [str(tmp_path), str(tmp_path / "state")], "new folders survive a power failure too"
        assert os.path.dirname(file) == folder == str(tmp_path / "state" / "0")
        assert os.path.basename(file).startswith(".1.delta.")
        assert named == "named"

    def test_new_files_have_the_users_permissions(self, tmp_path):
        before = os.umask(0o027)
        try:
            Folder.open(str(tmp_path)).publish("1.delta", b"x")
        finally:
            os.umask(before)
        assert (tmp_path / "1.delta").stat().st_mode & 0o777 == 0o640

    def test_hadoops_checksum_of_old_content_goes_away(self, tmp_path):
        folder = Folder.open(str(tmp_path))
        for change in (
            lambda: folder.publish("1.delta", b"new"),
            lambda: folder.publish("1.delta", b"new", no_objection),
            lambda: (os.unlink(tmp_path / "1.delta"), folder.publish("1.delta", b"new", no_objection)),
            lambda: folder.remove(["1.delta"]),
            lambda: folder.set_aside("1.delta"),
        ):
            folder.publish("1.delta", b"old")
            (tmp_path / ".1.delta.crc").write_bytes(b"crc")
            (tmp_path / ".2.delta.crc").write_bytes(b"crc")
            change()
            assert ".1.delta.crc" not in folder.list()
            assert ".2.delta.crc" in folder.list()


class TestSecrets:
    OPTIONS: ClassVar = {
        "key": "AKIAHUNTER",
        "secret": "hunter2/secret",
        "token": "hunter2",
        "endpoint_url": "http://user:hunter4@127.0.0.1:1",
        "client_kwargs": {"aws_session_token": "hunter3"},
    }

    def test_nowhere(self, monkeypatch, caplog):
        folder = Folder.open("s3a://bucket/x", self.OPTIONS, patience=Patience(sleep=no_sleep, attempts=2))
        said = "sent AKIAHUNTER and hunter2/secret and hunter3 to http://user:hunter4@127.0.0.1:1/x?X-Amz-Sig=hunter5"

        def refuses(path):
            raise ConnectionResetError(said)

        monkeypatch.setattr(folder._filesystem.fs, "cat_file", refuses)
        with pytest.raises(Unavailable) as caught:
            folder.read("1.delta")
        shown = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(folder) + folder.shown
        assert "s3a://bucket/x/1.delta" in shown
        assert "attempt 1 of 2" in shown
        assert "sent *** and *** and ***" in shown
        # The traceback quotes this file, where the secrets are spelled out; the rest must not.
        lines = [line for line in shown.splitlines() if "hunter" in line.lower()]
        assert lines == []

    def test_the_cause_stays_where_it_shows_nothing(self, monkeypatch):
        folder = Folder.open("s3a://bucket/x", self.OPTIONS)

        def refuses(path):
            raise PermissionError("no")

        monkeypatch.setattr(folder._filesystem.fs, "cat_file", refuses)
        with pytest.raises(Unavailable, match="PermissionError: no") as caught:
            folder.read("1.delta")
        assert isinstance(caught.value.__cause__, PermissionError)

    def test_wrong_options(self):
        with pytest.raises(InvalidSetting, match="gcs.*token") as caught:
            Folder.open("gs://bucket/x", {"token": "anon", "access": "hunter2"})
        assert "anon" not in str(caught.value)
