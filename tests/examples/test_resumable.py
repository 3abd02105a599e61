"""Trainings that are killed in the middle and go on from their checkpoint, to the very same weights."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "resumable"

# The first training with a framework waits for its environment.
pytestmark = [pytest.mark.slow, pytest.mark.training, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def platform(
    support: Any, share_environments: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A platform with the frameworks' environments."""
    path = tmp_path_factory.mktemp("platform") / "home"
    try:
        yield share_environments(support.start_platform(path))
    finally:
        support.stop_platform(path)


def log_of(platform: Any, job: str, attempt: int) -> str:
    return str(platform.cli("logs", job, "--rank", "0", "--attempt", str(attempt)).stdout)


def ended(platform: Any, support: Any, job: str) -> Any:
    def look() -> Any:
        shown = platform.cli("show", job, "--json").json()
        return shown if shown["phase"] in ("Completed", "Failed", "Terminated") else None

    shown = support.wait_until(look, seconds=900, what=f"{job} ends")
    assert shown["phase"] == "Completed", platform.cli("explain", job).output
    return shown


# Whole lines at once: both workers write to one log.
WORKER = """
import os, signal, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
def say(words):
    os.write(1, f"rank {dist.get_rank()} {words}\\n".encode())
def hear(number, frame):
    say("hears " + signal.Signals(number).name)
    if number == signal.SIGTERM:
        time.sleep(3)
        say("saved")
        sys.exit(0)
signal.signal(signal.SIGUSR1, hear)
signal.signal(signal.SIGTERM, hear)
dist.barrier()
say("ready")
time.sleep(600)
"""


def test_workers_of_torchrun_are_warned_once_and_have_their_grace(
    platform: Any, support: Any, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    job = {
        "name": "torchrun",
        "code": str(tmp_path),
        "command": "torchrun --standalone --nproc-per-node 2 worker.py",
        "engine": "pytorch",
        "time_limit": 600,
        "warn_before": 595,
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    assert platform.cli("submit", tmp_path / "job.yaml").exit_code == 0

    def has_heard() -> bool:
        return log_of(platform, "torchrun", 1).count("hears SIGUSR1") == 2

    support.wait_until(has_heard, seconds=300, what="both workers to be warned")
    assert platform.cli("stop", "torchrun", "--wait").exit_code == 0
    assert platform.cli("show", "torchrun", "--json").json()["phase"] == "Terminated"
    lines = log_of(platform, "torchrun", 1).splitlines()
    for rank in (0, 1):
        said = [line.split(maxsplit=2)[2] for line in lines if line.startswith(f"rank {rank} ")]
        # On a slow machine the warning comes before both have met.
        assert sorted(said[:2]) == ["hears SIGUSR1", "ready"], lines
        assert said[2:] == ["hears SIGTERM", "saved"], lines


@pytest.mark.parametrize("framework", ["pytorch", "mindspore", "paddle"])
def test_a_killed_attempt_is_followed_by_one_that_goes_on(
    platform: Any, support: Any, framework: str
) -> None:
    file = EXAMPLE / f"{framework}.yaml"
    whole, broken = f"{framework}-whole", f"{framework}-broken"
    assert platform.cli("submit", file, "--set", f"name={whole}").exit_code == 0
    slow = ("--set", "parameters.pause=0.1")
    assert platform.cli("submit", file, "--set", f"name={broken}", *slow).exit_code == 0
    job = platform.cli("show", broken, "--json").json()
    folder = platform.home.run_folder(job["id"], 1, 0)

    def has_learned() -> bool:
        return folder.rank_log(0).exists() and "epoch: 5," in folder.rank_log(0).read_text()

    support.wait_until(has_learned, seconds=900, what=f"{framework}'s sixth epoch")
    runner = int(json.loads(folder.status.read_text())["pid"])
    assert runner > 1
    # A fault of the platform's side: the runner dies, and all of the job with it.
    os.kill(runner, signal.SIGKILL)
    assert ended(platform, support, broken)["attempt"] == 2
    first, second = log_of(platform, broken, 1), log_of(platform, broken, 2)
    begins = int(re.findall(r"begins with epoch (\d+)", second)[0])
    assert 5 <= begins < 40 and "weights" not in first, second
    ended(platform, support, whole)
    expected = log_of(platform, whole, 1)
    # Not only the end is the same: so is every epoch on the way there.
    losses = re.findall(r"epoch: \d+, loss: [\d.]+", expected)
    assert re.findall(r"epoch: \d+, loss: [\d.]+", second) == losses[begins:]
    assert re.findall("weights: ([0-9a-f]{16})", second) == re.findall("weights: ([0-9a-f]{16})", expected)
