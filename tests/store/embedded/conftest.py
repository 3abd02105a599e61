"""Here `store` is the embedded one alone."""

from __future__ import annotations

import pytest

from trainshed.store.embedded.store import EmbeddedStore


@pytest.fixture
def store(embedded: EmbeddedStore) -> EmbeddedStore:
    """An embedded store with one bucket, `data`."""
    return embedded
