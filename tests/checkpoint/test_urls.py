"""Where a checkpoint lies, and with which options."""

import sys

import pytest

from holdfast.checkpoint.filesystems import filesystem_for
from holdfast.checkpoint.hadoop_options import fs_options, hadoop_options
from holdfast.checkpoint.storage import Folder
from holdfast.checkpoint.urls import locate, redact_urls
from holdfast.errors import EnvironmentNotReady, InvalidRequest

REGISTERED = sys.modules["fsspec.registry"]._registry  # the name in fsspec itself is a read-only view


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "path"),
        [
            ("/a/b", "/a/b"),
            ("/a b/%41é/~", "/a b/%41é/~"),
            ("/a//b/./c/", "/a/b/c"),
            ("/a/../b", "/b"),
            ("file:/a/b", "/a/b"),
            ("file:///a/b", "/a/b"),
            ("file://localhost/a/b", "/a/b"),
            ("file:/a b/%20", "/a b/%20"),
            ("FILE:/a?b#c", "/a?b#c"),
            ("/a:b/c", "/a:b/c"),
        ],
    )
    def test_local(self, url, path):
        location = locate(url)
        assert (location.protocol, location.path) == ("file", path)

    def test_relative(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert locate("a/b").path == f"{tmp_path}/a/b"
        assert locate("./s3:x").path == f"{tmp_path}/s3:x"
        assert locate("../b").path == f"{tmp_path.parent}/b"

    @pytest.mark.parametrize(
        ("url", "protocol", "path"),
        [
            ("s3a://bucket/a b/%20", "s3", "bucket/a b/%20"),
            ("s3n://bucket", "s3", "bucket"),
            ("S3://bucket/x/../y/", "s3", "bucket/y"),
            ("gs://bucket/x", "gcs", "bucket/x"),
            ("gcs://bucket//x", "gcs", "bucket/x"),
            ("memory://x/y", "memory", "/x/y"),
            ("memory:///x/y", "memory", "/x/y"),
            ("hdfs://name:8020/x y", "hdfs", "/x y"),
            ("hdfs:///x", "hdfs", "/x"),
        ],
    )
    def test_remote(self, url, protocol, path):
        location = locate(url)
        assert (location.protocol, location.path) == (protocol, path)

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "a\0b",
            "/../a",
            "s3://bucket/../other",
            "s3:///x",
            "s3:bucket/x",
            "file:x",
            "file://host/x",
            "file://x",
            "simplecache::s3://b/x",
            "s3a://key:hunter2@bucket/x",
            "s3a://key:hunter2/hunter2@bucket/x",
            "s3a://key:hunter2@hunter2/hunter2@bucket/x",
            "gs://b/../../x",
        ],
    )
    def test_refused(self, url):
        with pytest.raises(InvalidRequest) as caught:
            locate(url)
        assert "hunter2" not in str(caught.value)

    def test_shown_has_no_secret(self):
        for password in ("hunter2", "hun@ter2", "hun/ter2", "/hunter2@", "hunter2/@a/", "hun:ter2/x"):
            assert locate(f"sftp://me:{password}@host/x/y").shown == "sftp://***@host/x/y"
            said = f"cannot reach sftp://me:{password}@host/x, nor 'hdfs://me:{password}@host/y'."
            assert redact_urls(said) == "cannot reach sftp://***@host/x, nor 'hdfs://***@host/y'."
        assert redact_urls("me@here asked for s3a://bucket/a@b and hdfs://host:1/c") == (
            "me@here asked for s3a://bucket/a@b and hdfs://host:1/c"
        )
        assert locate("abfs://c@a.dfs.core.windows.net/x?sig=hunter2").shown.endswith("/x?***")
        assert locate("s3a://bucket/x").shown == "s3a://bucket/x"
        assert locate("file:///a/b?c").shown == "file:/a/b?c"

    def test_unknown_filesystem(self):
        with pytest.raises(InvalidRequest, match="wonderfs"):
            Folder.open("wonderfs://x/y")


class TestOpening:
    @pytest.mark.parametrize(("url", "package", "extra"), [("s3a://b/x", "s3fs", "s3"), ("gs://b/x", "gcsfs", "gcs")])
    def test_package_missing(self, monkeypatch, url, package, extra):
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(REGISTERED, extra, raising=False)
        with pytest.raises(EnvironmentNotReady, match=rf"pip install 'holdfast\[{extra}\]'"):
            Folder.open(url, {"only": "for this test"})

    def test_one_connection_per_process_and_options(self, tmp_path):
        assert filesystem_for(locate("/a"), {}) is filesystem_for(locate(str(tmp_path)), {})
        one = filesystem_for(locate("s3://a"), {"key": "1"})
        assert one is filesystem_for(locate("s3a://b/c"), {"key": "1"})
        assert one is not filesystem_for(locate("s3a://b/c"), {"key": "2"})

    def test_settings_of_others_stay_as_they_are(self, moto_server):
        import s3fs

        Folder.open(moto_server.url("x"), moto_server.options)
        assert s3fs.S3FileSystem.retries > 1
        assert s3fs.S3FileSystem(**moto_server.options).retries > 1

    def test_hadoop_options_s3(self):
        conf = {
            "spark.hadoop.fs.s3a.access.key": "k",
            "spark.hadoop.fs.s3a.secret.key": "s",
            "spark.hadoop.fs.s3a.session.token": "t",
            "spark.hadoop.fs.s3a.endpoint": "127.0.0.1:9000",
            "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.block.size": "64M",
            "spark.sql.shuffle.partitions": "5",
        }
        expected = {
            "key": "k",
            "secret": "s",
            "token": "t",
            "endpoint_url": "http://127.0.0.1:9000",
            "client_kwargs": {"region_name": "eu-west-1"},
            "config_kwargs": {"s3": {"addressing_style": "path"}},
            "use_ssl": False,
        }
        assert hadoop_options(conf, "s3a") == hadoop_options(conf, "s3") == expected
        assert hadoop_options(conf, "file") == hadoop_options(conf, "gs") == {}
        assert hadoop_options({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, "s3") == {
            "endpoint_url": "https://s3.eu-west-1.amazonaws.com"
        }
        anonymous = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
        assert hadoop_options({"fs.s3a.aws.credentials.provider": anonymous}, "s3") == {"anon": True}

    def test_hadoop_options_gcs(self):
        conf = {
            "spark.hadoop.google.cloud.auth.service.account.json.keyfile": "/key.json",
            "spark.hadoop.fs.gs.project.id": "p",
            "spark.hadoop.fs.gs.storage.root.url": "http://127.0.0.1:4443/",
            "spark.hadoop.fs.gs.implicit.dir.repair.enable": "false",
        }
        assert hadoop_options(conf, "gs") == {
            "token": "/key.json",
            "project": "p",
            "endpoint_url": "http://127.0.0.1:4443",
        }
        assert hadoop_options({"fs.gs.auth.type": "UNAUTHENTICATED"}, "gcs") == {"token": "anon"}

    def test_what_is_given_goes_before_the_configuration(self):
        conf = {
            "spark.hadoop.fs.s3a.access.key": "conf",
            "spark.hadoop.fs.s3a.secret.key": "conf",
            "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
            "spark.hadoop.fs.s3a.bucket.mine.access.key": "bucket",
            "spark.hadoop.fs.s3a.bucket.min.secret.key": "another bucket's",
        }
        given = {"secret": "given", "client_kwargs": {"verify": False}, "anon": False}
        assert fs_options("s3a://mine/x", conf, given) == {
            "key": "bucket",
            "secret": "given",
            "client_kwargs": {"region_name": "eu-west-1", "verify": False},
            "anon": False,
        }
        assert fs_options("s3a://other/x", conf) == {
            "key": "conf",
            "secret": "conf",
            "client_kwargs": {"region_name": "eu-west-1"},
        }
        assert fs_options("/tmp/x", conf) == fs_options("gs://mine/x", conf) == {}
        assert fs_options("memory://x", conf, given) == given

    def test_hadoop_options_reach_a_server(self, moto_server, tmp_path):
        conf = {
            "spark.hadoop.fs.s3a.access.key": "k",
            "spark.hadoop.fs.s3a.secret.key": "s",
            "spark.hadoop.fs.s3a.endpoint": moto_server.endpoint.removeprefix("http://"),
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }
        url = moto_server.url(tmp_path.name, "hadoop")
        folder = Folder.open(url, fs_options(url, conf))
        folder.publish("1.delta", b"x")
        assert folder.list() == {"1.delta": 1}
