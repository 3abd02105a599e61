"""The store process that these tests talk to."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import store_server

# The clients warn about themselves while they are imported; that is theirs to mend.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import boto3.s3.transfer
    import botocore.config
    import obs
    import obs.crypto_client

__all__ = ["blobs", "boto3", "obs", "server"]

server = store_server.server
blobs = store_server.blobs


def make_s3(server: Any, user: str = "dev", **settings: Any) -> Any:
    """A boto3 client for a user; an empty one is anonymous."""
    pair = server.keys[user] if user else None
    config = {"signature_version": "s3v4", "s3": {"addressing_style": "path"}, "retries": {"max_attempts": 1}}
    config |= settings or {}
    if pair is None:
        config["signature_version"] = botocore.UNSIGNED
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=pair.access_key if pair else None,
        aws_secret_access_key=pair.secret_key if pair else None,
        config=botocore.config.Config(**config),
    )


@pytest.fixture(scope="session")
def connect() -> Callable[..., Any]:
    """Makes boto3 clients of another store than the module's own."""
    return make_s3


@pytest.fixture(scope="module")
def s3(server: Any) -> Iterator[Any]:
    """A boto3 client with a bucket `data` that is there."""
    client = make_s3(server)
    client.create_bucket(Bucket="data")
    yield client
    client.close()


@pytest.fixture(scope="module")
def s3_as(server: Any) -> Iterator[Callable[..., Any]]:
    """Makes boto3 clients of other users or with other settings."""
    clients: list[Any] = []

    def make(user: str = "dev", **settings: Any) -> Any:
        clients.append(make_s3(server, user, **settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def names_of_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """`bucket.localhost` is this machine, also where the system's resolver does not know that."""
    real = socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **more: Any) -> Any:
        is_local = isinstance(host, str) and host.endswith(".localhost")
        return real("127.0.0.1" if is_local or host == "localhost" else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
