"""Every database test runs on the embedded database and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from trainshed.db.engine import open_engine
from trainshed.db.migrations import upgrade


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with all tables."""
    engine = open_engine(database_url)
    upgrade(engine)
    yield engine
    engine.dispose()
