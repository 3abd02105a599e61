"""The endpoint that the table runs against: one store process for all of it (in each worker)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

# Tests are no package, and the benchmark that compares stores loads the table as well.
sys.path.insert(0, str(Path(__file__).parent))

from s3_table import Stage, Target, prepare
from s3_table.signing import KeyPair


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A store process of our own, with the buckets that cases share."""
    server: Any = sys.modules["store_server"].make_server(tmp_path_factory.mktemp("conformance"))
    keys = {name: KeyPair(pair.access_key, pair.secret_key) for name, pair in server.keys.items()}
    target = Target("Trainshed", server.url, keys)
    try:
        prepare(target)
        yield target
    finally:
        target.close()
        server.stop()


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    """Numbers that make the names of each case's objects its own."""
    return count(1)


@pytest.fixture
def stage(target: Target, numbers: Iterator[int]) -> Stage:
    """A place for one case."""
    return Stage(target, next(numbers))
