from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.model.metric_lines import read_metric_record
from trainshed.runner import sandbox_plan
from trainshed.runner.shims import SHIMS_PATH, shims_folder


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(shims_folder()), "PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd="/",
    )


def test_points_are_written_one_line_each(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    program = (
        "import trainshed\n"
        "print(trainshed.log_metric('loss', 0.5, step=3, epoch=1), trainshed.log_metric('精度', float('nan')),"
        " trainshed.log_metric('rate', float('inf')))"
    )
    assert run(program, TRAINSHED_METRICS_FILE=str(file), RANK="2").stdout == "True True True\n"
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [record["name"] for record in records] == ["loss", "精度", "rate"]
    assert records[0]["step"] == 3 and records[0]["rank"] == 2 and records[1]["value"] == "nan"
    points = [read_metric_record(record) for record in records]
    assert points[0] is not None and points[0].value == 0.5 and points[0].epoch == 1
    assert points[2] is not None and points[2].value == float("inf")


def test_outside_a_job_and_on_a_full_disk_nothing_happens() -> None:
    program = "import trainshed; print(trainshed.log_metric('loss', 1))"
    assert run(program).stdout == "False\n"
    assert run(program, TRAINSHED_METRICS_FILE="/nowhere/at/all").stdout == "False\n"
    assert run(program, TRAINSHED_METRICS_FILE="/dev/full").stdout == "False\n"


def test_lines_of_many_processes_never_mix(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    program = "import trainshed\nfor i in range(500): trainshed.log_metric('x' * 100, i)"
    workers = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", program],
            env={"PYTHONPATH": str(shims_folder()), "TRAINSHED_METRICS_FILE": str(file), "RANK": str(rank)},
        )
        for rank in range(4)
    ]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    lines = file.read_text().splitlines()
    assert len(lines) == 2000
    assert {json.loads(line)["rank"] for line in lines} == {0, 1, 2, 3}


@pytest.mark.parametrize("file", sorted(shims_folder().rglob("*.py")), ids=lambda path: path.parent.name)
def test_shims_are_written_for_old_interpreters(file: Path) -> None:
    ast.parse(file.read_text("utf-8"), feature_version=(3, 7))


def test_a_job_finds_them_where_its_environment_looks() -> None:
    assert sandbox_plan.SHIMS_PATH == SHIMS_PATH
