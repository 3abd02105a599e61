"""The Apulis examples, through the whole platform: two workers, ssh between them, sixteen MindSpore ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("platform_up", [("--rehearse", "nvidia:4")], indirect=True)
def test_a_host_file_job_reaches_both_workers(platform_up: Any) -> None:
    job = EXAMPLES / "apulis-horovod" / "job.yaml"
    done = platform_up.cli("submit", job, "--set", "hold=1", "--follow", timeout=200)
    assert done.exit_code == 0, done.output
    ranks = set(
        re.findall(r"rank (\d) of 8, local rank (\d) on (worker-\d): \[ 2.  -3.   0.5\]", done.stdout)
    )
    assert ranks == {(str(rank), str(rank % 4), f"worker-{rank // 4}") for rank in range(8)}
    assert "held open" in done.output


@pytest.mark.slow
@pytest.mark.training
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("platform_up", [("--rehearse", "ascend:8")], indirect=True)
def test_two_npus_of_a_worker_train_with_mindspore(
    platform_up: Any, mnist: Path, share_environments: Any
) -> None:
    share_environments(platform_up)
    assert platform_up.cli("obs", "mb", "datasets").exit_code == 0
    assert platform_up.cli("obs", "cp", "-r", mnist, "obs://datasets/mnist/").exit_code == 0
    job = EXAMPLES / "apulis-mindspore" / "job.yaml"
    smaller = ("--set", "nodes=1", "--set", "flavor=ascend.2", "--set", "hold=1")
    done = platform_up.cli("submit", job, *smaller, "--follow", timeout=900)
    assert done.exit_code == 0, done.output[-8000:]
    weights = re.findall(r"rank (\d) of 2: weights ([0-9.]+)", done.stdout)
    assert sorted(rank for rank, _ in weights) == ["0", "1"]
    assert len({value for _, value in weights}) == 1, "both ranks have learned the same"
