from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed import log_metric


def test_outside_a_job_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRAINSHED_METRICS_FILE", raising=False)
    assert log_metric("loss", 1.0) is False
    assert capfd.readouterr() == ("", "")


def test_points_are_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("TRAINSHED_METRICS_FILE", str(path))
    monkeypatch.setenv("RANK", "3")
    assert log_metric("loss", 0.5, step=7, epoch=1.5)
    assert log_metric("loss", float("-inf"))
    first, second = map(json.loads, path.read_text().splitlines())
    assert first.pop("time") > 0
    assert first == {"rank": 3, "name": "loss", "value": 0.5, "step": 7, "epoch": 1.5}
    assert second["value"] == "-inf"


def test_a_file_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_METRICS_FILE", str(tmp_path / "missing" / "metrics.jsonl"))
    assert log_metric("loss", 1.0) is False
    monkeypatch.setenv("TRAINSHED_METRICS_FILE", "/dev/full")
    assert log_metric("loss", 1.0) is False


def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    code = "import trainshed\nfor i in range(500): trainshed.log_metric('loss' * 20, i, step=i)"
    environment = {"TRAINSHED_METRICS_FILE": str(path)}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    points = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(point["step"] for point in points) == sorted(list(range(500)) * 4)
