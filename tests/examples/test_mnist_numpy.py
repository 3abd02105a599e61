"""A real training on a real data set: the MNIST example, through the whole platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mnist-numpy"


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
