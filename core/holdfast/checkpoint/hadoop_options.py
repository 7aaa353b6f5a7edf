"""Hadoop's settings of a filesystem, as users of Spark have them, in terms of fsspec's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.urls import locate

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "spark.hadoop."


def fs_options(url: str, conf: Mapping[str, str], given: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return the fsspec options for the checkpoint at ``url``: what a Spark configuration says, and what was given.

    What was given wins, also inside of options that are mappings themselves.
    """
    location = locate(url)
    hadoop = {key.removeprefix(PREFIX): value for key, value in conf.items()}
    if location.protocol == "s3":
        # Hadoop lets one bucket have its own settings.
        own = f"fs.s3a.bucket.{location.path.partition('/')[0]}."
        hadoop |= {"fs.s3a." + key.removeprefix(own): value for key, value in hadoop.items() if key.startswith(own)}
    return _merged(hadoop_options(hadoop, location.protocol), given)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        name: _merged(base[name], value)
        for name, value in over.items()
        if isinstance(value, dict) and isinstance(base.get(name), dict)
    }
    return {**base, **over, **both}


def hadoop_options(conf: Mapping[str, str], protocol: str) -> dict[str, Any]:
    """Return the fsspec options that mean what a Spark configuration says; settings without a counterpart are ignored.

    ``protocol`` is fsspec's name or Hadoop's (``s3``, ``s3a``, ``gs``, …). Keys count with and without their prefix.
    """
    hadoop = {key.removeprefix(PREFIX): value for key, value in conf.items() if value != ""}
    if protocol in {"s3", "s3a", "s3n"}:
        return _s3(hadoop)
    if protocol in {"gcs", "gs"}:
        return _gcs(hadoop)
    return {}


def _s3(hadoop: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        option: hadoop[f"fs.s3a.{name}"]
        for name, option in {"access.key": "key", "secret.key": "secret", "session.token": "token"}.items()
        if f"fs.s3a.{name}" in hadoop
    }
    if "AnonymousAWSCredentialsProvider" in hadoop.get("fs.s3a.aws.credentials.provider", ""):
        options["anon"] = True
    encrypted = hadoop.get("fs.s3a.connection.ssl.enabled", "true").lower() != "false"
    if not encrypted:
        options["use_ssl"] = False
    if endpoint := hadoop.get("fs.s3a.endpoint"):
        scheme = "https" if encrypted else "http"
        options["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if region := hadoop.get("fs.s3a.endpoint.region"):
        options["client_kwargs"] = {"region_name": region}
    if hadoop.get("fs.s3a.path.style.access", "").lower() == "true":
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return options


def _gcs(hadoop: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    # The connector's two generations of names; the newer one wins.
    for key in (
        "google.cloud.auth.service.account.json.keyfile",
        "fs.gs.auth.service.account.json.keyfile",
    ):
        if key in hadoop:
            options["token"] = hadoop[key]
    if hadoop.get("fs.gs.auth.type", "").upper() == "UNAUTHENTICATED":
        options["token"] = "anon"  # noqa: S105 -- gcsfs's word for no token
    if project := hadoop.get("fs.gs.project.id"):
        options["project"] = project
    if root := hadoop.get("fs.gs.storage.root.url"):
        options["endpoint_url"] = root.rstrip("/")
    return options
