"""Fixtures for the runner's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.store import open_store
from trainshed.store.object_store import ObjectStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty embedded store."""
    opened = open_store(f"file://{tmp_path / 'store'}")
    yield opened
    opened.close()
