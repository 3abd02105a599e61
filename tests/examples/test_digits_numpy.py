"""The example trains, with and without a platform."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from trainshed.client.job_file import read_job_file
from trainshed.model.job_spec import parse_job_spec
from trainshed.model.metric_lines import MetricParser

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "digits-numpy"


def test_it_learns_to_read_digits(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE / "train.py", "--epochs=3", f"--train_url={tmp_path}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    result = json.loads((tmp_path / "accuracy.json").read_text())
    assert result["accuracy"] > 0.9 and result["epochs"] == 3
    assert (tmp_path / "model.npz").exists()
    parser = MetricParser()
    points = [point for line in done.stdout.splitlines() for point in parser.feed(line)]
    losses = [point.value for point in points if point.name == "loss"]
    accuracies = [point.value for point in points if point.name == "accuracy"]
    assert len(losses) == 12 and losses[-1] < losses[0]
    assert accuracies[-1] == result["accuracy"]


def test_the_job_file_is_a_job() -> None:
    spec = parse_job_spec(read_job_file(EXAMPLE / "job.yaml"))
    assert spec.boot == "train.py" and Path(spec.code).samefile(EXAMPLE)
