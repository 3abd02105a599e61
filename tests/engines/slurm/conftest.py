"""A real Slurm of three nodes, and an engine that submits to it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm_yard
from slurm_yard import Yard
from trainshed.model.pools import Pool


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes with 8 cores, 2 gpu and 8 npu each; partitions all, urgent, short and closed."""
    with slurm_yard.open_cluster() as running:
        yield running


@pytest.fixture
def yard(cluster: Any, tmp_path: Path) -> Iterator[Yard]:
    """An engine with a pool for each partition; at the end nothing of it is left in the cluster."""
    names = {"lab": "all", "urgent": "urgent", "short": "short", "closed": "closed", "gone": "gone"}
    pools = tuple(Pool(name, "slurm", partition, python=sys.executable) for name, partition in names.items())
    yard = Yard(cluster, tmp_path, pools)
    yield yard
    cluster.call("scancel", "-u", os.environ.get("USER", "root"), "-s", "KILL", "-b", check=False)
    cluster.call("scancel", "-u", os.environ.get("USER", "root"), check=False)
    deadline = time.monotonic() + 90
    while cluster.call("squeue", "-h", check=False).stdout and time.monotonic() < deadline:
        time.sleep(0.1)
