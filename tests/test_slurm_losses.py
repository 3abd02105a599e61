"""What is left of a job on a cluster when its machine loses power, or when the platform stays away for too long."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm_lab

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(support: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A platform that asks its nodes for checkpoints often, and lets them wait for it for a quarter of a minute only."""
    settings = "checkpoint_seconds = 15\nrunner_patience_minutes = 0.25\n"
    with slurm_lab.open_lab(support, tmp_path_factory.mktemp("losses"), settings) as lab:
        yield lab


def run_folder(job_id: str, attempt: int = 1) -> Path:
    """The folder of a run on the node's own disk."""
    root = Path(tempfile.gettempdir()) / f"trainshed-{os.geteuid()}"
    [found] = root.glob(f"run-{job_id[:8]}-{attempt}-0-*")
    return found


def cut_power(lab: Any, name: str, job_id: str) -> None:
    """Let the machine of a job of one node be gone: its daemon, its processes, and its disk."""
    node = lab.cluster.call("squeue", "-h", "-j", lab.slurm_job(name), "-o", "%N").stdout.strip()
    found = lab.processes(name)
    folder = run_folder(job_id)
    # Whoever would notice a death, and bring home what is left, is halted before.
    os.kill(found["supervisor"], signal.SIGSTOP)
    step = slurm_lab._parent(found["supervisor"])
    lab.cluster.kill("slurmd", int(node.removeprefix("n")))
    for pid in (step, found["courier"], found["runner"], found["supervisor"]):
        if pid > 1:
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    lab.wait(lambda: not any(map(lab.support.is_alive, found.values())), 60, "the death of the machine")
    shutil.rmtree(folder, ignore_errors=True)
    lab.lost = int(node.removeprefix("n"))


def test_what_could_not_be_delivered_is_left_on_the_machine_and_told(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "unheard", steps=60)
    lab.until_step("unheard", 3)
    node = lab.cluster.call("squeue", "-h", "-j", lab.slurm_job("unheard"), "-o", "%N").stdout.strip()
    job_id = lab.show("unheard")["id"]
    folder = run_folder(job_id)
    lab.cut(node)
    try:
        job = lab.end("unheard", 220)
    finally:
        lab.mend()
    try:
        assert (job["phase"], job["ending"]["code"]) == ("Failed", "undelivered"), lab.story("unheard")
        assert node in job["ending"]["message"] and folder.name.rpartition("-")[0] in job["ending"]["hint"]
        # All that it made is there, and nothing that only the runner may know.
        assert (folder / "root/outputs/out/model-0").read_text() == "weights"
        assert "step 59 " in (folder / "logs/rank-0.log").read_text()
        assert not (folder / "secrets.json").exists() and not (folder / "token").exists()
        # The platform has what it had heard before; a machine that it could not hear is not at once a bad one.
        assert 3 in lab.steps("unheard") and len(lab.failures(node)) <= 1
        lab.submit(tmp_path, "heard-again", steps=3)
        assert lab.end("heard-again")["phase"] == "Completed", lab.story("heard-again")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_machine_that_loses_power_does_not_lose_its_checkpoints(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "powerless", restarts=1, steps=5000, later=0.1)
    job_id = lab.show("powerless")["id"]
    folder = lab.path / "jobs" / job_id
    came = "checkpoints are brought home while the job trains"
    log = folder / "attempt-1/node-0/logs/platform.log"
    lab.wait(lambda: log.exists() and came in log.read_text(), 150, "the first checkpoint")
    cut_power(lab, "powerless", job_id)
    log = folder / "attempt-2/node-0/logs/rank-0.log"
    try:
        lab.wait(lambda: log.exists() and "step " in log.read_text(), 150, "the second attempt")
    finally:
        lab.cluster.start_node(lab.lost)
    assert lab.cli("stop", "powerless").exit_code == 0
    job = lab.end("powerless")
    assert (job["phase"], job["attempt"]) == ("Terminated", 2), lab.story("powerless")
    first, second = lab.steps("powerless", 0, 1), lab.steps("powerless", 0, 2)
    # It went on from what had come home. (Of the first log the last second or two are lost with the machine.)
    assert 0 < second[0] <= len(first) + 50, (first[-1], second[0])
    assert "that came home while attempt 1 trained" in lab.cli("logs", "powerless", "--platform").output
