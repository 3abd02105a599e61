"""Stores to test with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.store.embedded.store import EmbeddedStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An embedded store with one bucket, `data`."""
    store = EmbeddedStore(tmp_path / "store")
    store.create_bucket("data", "w1")
    yield store
    store.close()
