"""Stores to test with: what every store must do is tested on the embedded one and on a real SeaweedFS."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seaweedfs import shared_endpoint
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.external.address import Credentials, parse_place
from trainshed.store.external.store import ExternalStore
from trainshed.store.external.wire import Refused, Wire
from trainshed.store.object_store import ObjectStore


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A SeaweedFS that all workers of a test run share, with one bucket: `trainshed`."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp()
    endpoint = shared_endpoint(base.parent if is_worker else base, os.getppid() if is_worker else os.getpid())
    wire = Wire(
        parse_place("s3://trainshed", endpoint=endpoint.url),
        Credentials(endpoint.access_key, endpoint.secret_key),
    )
    try:
        wire.ask("PUT")
    except Refused as refused:
        # Another worker has made it.
        assert refused.code == "BucketAlreadyOwnedByYou", refused
    wire.close()
    return endpoint


@pytest.fixture
def external(seaweedfs: Any) -> Iterator[ExternalStore]:
    """An external store at a place of its own, with one bucket, `data`."""
    address = parse_place(f"s3://trainshed/{uuid.uuid4().hex}/of tests", endpoint=seaweedfs.url)
    store = ExternalStore(address, Credentials(seaweedfs.access_key, seaweedfs.secret_key))
    store.create_bucket("data", "w1")
    yield store
    store.close()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An embedded store with one bucket, `data`."""
    store = EmbeddedStore(tmp_path / "store")
    store.create_bucket("data", "w1")
    yield store
    store.close()


@pytest.fixture(params=["embedded", "external"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Each store in turn, with one bucket, `data`."""
    found: ObjectStore = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def whole() -> Callable[[ObjectStore], None]:
    """Asserts that nothing half-made lies about: no orphans, nothing damaged, no upload that nobody knows."""

    def check(store: ObjectStore) -> None:
        if isinstance(store, EmbeddedStore):
            report = store.verify()
            assert report.is_whole and report.orphans == ()
        else:
            assert isinstance(store, ExternalStore)
            known = {upload.key for upload in store.list_uploads("data").uploads}
            names = {store._layout.name("data", key) for key in known}
            assert {name for name, _, _ in store._endpoint_uploads()} <= names

    return check
