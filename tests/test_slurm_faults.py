"""Whatever dies between the platform and a job on the cluster, the job ends true, once per attempt, with its whole log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm_lab

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(support: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with slurm_lab.open_lab(support, tmp_path_factory.mktemp("faults")) as lab:
        yield lab


@pytest.fixture(autouse=True)
def rested(lab: Any) -> None:
    """Every test finds idle machines: what the one before has left would decide where its jobs run."""
    lab.rest()


def test_a_preempted_job_goes_on_from_its_checkpoint(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "low", nodes=2, flavor="cpu.8", restarts=1, steps=500)
    lab.until_step("low", 5, rank=1)
    lab.submit(tmp_path, "high", nodes=3, flavor="cpu.8", pool="urgent", steps=3)
    assert lab.end("high")["phase"] == "Completed"
    job = lab.end("low")
    assert (job["phase"], job["attempt"]) == ("Completed", 2), lab.story("low")
    assert "Slurm took the machines for a job of higher priority" in lab.story("low")
    for rank in (0, 1):
        first, second = lab.steps("low", rank, 1), lab.steps("low", rank, 2)
        # Every line of both attempts is there, and nothing was done twice or left out.
        assert first + second == list(range(500)), (first, second)
        assert f"kept {len(first)}" in lab.log("low", rank, 1)
        assert f"starts at {len(first)}" in lab.log("low", rank, 2)


def test_a_node_that_is_cut_off_for_a_while_is_not_disturbed(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "cut", nodes=2, steps=120)
    lab.until_step("cut", 3, rank=1)
    lab.cut(lab.machines("cut")[1])
    try:
        lab.until_step("cut", 90)
        behind = lab.steps("cut", 1)
        assert lab.show("cut")["phase"] == "Running"
    finally:
        lab.mend()
    assert len(behind) < 90
    job = lab.end("cut")
    assert (job["phase"], job["attempt"]) == ("Completed", 1), lab.story("cut")
    assert lab.steps("cut", 0) == lab.steps("cut", 1) == list(range(120))


def test_a_platform_that_is_away_while_a_job_ends_finds_it_ended(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "alone", nodes=2, steps=60)
    lab.until_step("alone", 3)
    number = lab.slurm_job("alone")
    lab.kill()
    try:
        # Long after the job's own end its nodes wait with what they have.
        time.sleep(9)
        assert lab.cluster.call("squeue", "-h", "-j", number, "-o", "%T").stdout.strip() == "RUNNING"
    finally:
        lab.start()
    job = lab.end("alone")
    assert (job["phase"], job["attempt"]) == ("Completed", 1), lab.story("alone")
    assert lab.steps("alone", 0) == lab.steps("alone", 1) == list(range(60))
    assert "model-1" in lab.cli("obs", "ls", "-r", "obs://results/alone/").stdout


def test_processes_killed_on_a_node_cost_an_attempt_at_most(lab: Any, tmp_path: Path) -> None:
    parts = ("runner", "courier", "supervisor")
    for part in parts:
        # Two nodes: the other one must not wait for ever for a peer that is gone.
        lab.submit(tmp_path, f"kill-{part}", nodes=2, restarts=1, steps=250)
    for part in parts:
        lab.until_step(f"kill-{part}", 3, rank=1)
        os.kill(lab.processes(f"kill-{part}", node=1)[part], signal.SIGKILL)
    for part in parts:
        job = lab.end(f"kill-{part}")
        attempts = 1 if part == "courier" else 2
        assert (job["phase"], job["attempt"]) == ("Completed", attempts), lab.story(f"kill-{part}")
        for rank in (0, 1):
            told = [lab.steps(f"kill-{part}", rank, attempt) for attempt in range(1, attempts + 1)]
            assert set().union(*told) == set(range(250)), (part, told)
            # None of them left out a step, or did one twice.
            assert all(
                steps == list(range(min(steps, default=0), max(steps, default=-1) + 1)) for steps in told
            )


def test_a_machine_whose_daemon_dies_brings_its_checkpoint_home(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "node", nodes=2, restarts=1, steps=900)
    lab.until_step("node", 3, rank=1)
    number, machine = lab.slurm_job("node"), int(lab.machines("node")[1].removeprefix("n"))
    # Its processes live on, and the platform hears them: only Slurm gives the machine up.
    lab.cluster.kill("slurmd", machine)
    try:
        lab.wait(lambda: lab.show("node")["attempt"] == 2, 120, "the second attempt")
        assert (
            lab.cluster.call("squeue", "-h", "-t", "all", "-j", number, "-o", "%T").stdout.strip()
            == "NODE_FAIL"
        )
        lab.until_step("node", 899, rank=1, attempt=2)
    finally:
        lab.cluster.start_node(machine)
    job = lab.end("node")
    assert (job["phase"], job["attempt"]) == ("Completed", 2), lab.story("node")
    assert "A machine of the job failed" in lab.story("node")
    for rank in (0, 1):
        first, second = lab.steps("node", rank, 1), lab.steps("node", rank, 2)
        assert first + second == list(range(900)), (rank, len(first), second[:1])


def test_a_controller_that_has_lost_everything_ends_attempts_and_no_job(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "forgotten", restarts=1, steps=600)
    lab.until_step("forgotten", 3)
    lab.cluster.kill("slurmctld")
    for path in (lab.cluster.folder / "state").iterdir():
        if path.is_file():
            path.unlink()
    # As an administrator would: machines refuse numbers of jobs that they have seen end.
    conf = lab.cluster.folder / "slurm.conf"
    conf.write_text(f"{conf.read_text()}FirstJobId=1000\n")
    lab.cluster.start_controller()
    job = lab.end("forgotten")
    assert (job["phase"], job["attempt"]) == ("Completed", 2), lab.story("forgotten")
    first, second = lab.steps("forgotten", 0, 1), lab.steps("forgotten", 0, 2)
    assert first == list(range(len(first))) and len(first) > 3
    # Slurm kills what it does not know without a grace: the checkpoint may have come home in time, or not; and between
    # a line and its checkpoint as well as elsewhere.
    assert second == list(range(second[0], 600)), (first, second)
    assert second[0] in (0, len(first) - 1, len(first)), (first, second)


def test_an_attempt_that_is_twice_in_slurm_runs_once(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "double", nodes=2, steps=200)
    lab.until_step("double", 3, rank=1)
    number = lab.slurm_job("double")
    # As when a controller takes a job, dies before it answers, and comes back with it: the same script and token.
    script = lab.cluster.call("scontrol", "write", "batch_script", number, "-").stdout
    supervisor = lab.processes("double")["supervisor"]
    variables = Path(f"/proc/{supervisor}/environ").read_bytes().decode().split("\0")
    token = next(item for item in variables if item.startswith("TRAINSHED_RUNNER_TOKEN="))
    given = {**lab.cluster.environment, "TRAINSHED_RUNNER_TOKEN": token.partition("=")[2]}
    done = subprocess.run(
        ["sbatch", "--parsable"],
        input=script,
        env=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    job = lab.end("double")
    assert (job["phase"], job["attempt"]) == ("Completed", 1), lab.story("double")
    assert lab.steps("double", 0) == lab.steps("double", 1) == list(range(200))
    second = done.stdout.strip()
    assert second != number

    def is_gone() -> bool:
        states = lab.cluster.call("squeue", "-h", "-t", "all", "-j", second, "-o", "%T", check=False).stdout
        return states.strip() in ("", "CANCELLED", "FAILED")

    lab.wait(is_gone, 120, "the second one's end")


def test_what_an_administrator_does_in_slurm_is_understood(lab: Any, tmp_path: Path) -> None:
    call = lab.cluster.call
    for name in ("cancelled", "requeued"):
        lab.submit(tmp_path, name, restarts=1, steps=900)
    lab.submit(tmp_path, "held", pool="closed", steps=3)
    lab.wait(lambda: lab.show("held")["detail"] == "queued in slurm", 120, "the hand-over")
    held = lab.slurm_job("held")
    call("scontrol", "hold", held)
    for name in ("cancelled", "requeued"):
        lab.until_step(name, 3)
    call("scancel", lab.slurm_job("cancelled"))
    requeued = lab.slurm_job("requeued")
    call("scontrol", "update", f"jobid={requeued}", "requeue=1")
    call("scontrol", "requeue", requeued)
    lab.wait(lambda: "held in Slurm" in lab.cli("explain", "held").output, 120, "its reason")
    call("scontrol", "update", "partitionname=closed", "state=up")
    try:
        call("scontrol", "release", held)
        assert lab.end("held")["phase"] == "Completed"
    finally:
        call("scontrol", "update", "partitionname=closed", "state=down")
    for name in ("cancelled", "requeued"):
        job = lab.end(name)
        assert (job["phase"], job["attempt"]) == ("Completed", 2), lab.story(name)
        first, second = lab.steps(name, 0, 1), lab.steps(name, 0, 2)
        assert first + second == list(range(900)), (name, first, second)
    assert "was cancelled in Slurm" in lab.story("cancelled")


def test_a_stop_is_obeyed_at_any_moment(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "stop-queued", pool="closed")
    lab.wait(lambda: lab.show("stop-queued")["detail"] == "queued in slurm", 120, "the hand-over")
    lab.submit(tmp_path, "stop-starting", nodes=2, steps=600)
    lab.submit(tmp_path, "stop-running", steps=600)
    # One that starts may be anywhere between Slurm's queue and the first step.
    lab.wait(lambda: lab.show("stop-starting")["phase"] == "Running", 120, "its start")
    assert lab.cli("stop", "stop-starting").exit_code == 0
    lab.until_step("stop-running", 3)
    assert lab.cli("delete", "stop-running").exit_code != 0
    assert lab.show("stop-running")["phase"] == "Running"
    for name in ("stop-queued", "stop-running"):
        assert lab.cli("stop", name).exit_code == 0
    for name in ("stop-queued", "stop-starting", "stop-running"):
        assert lab.end(name)["phase"] == "Terminated", lab.story(name)
    assert "kept" in lab.log("stop-running") and 3 in lab.steps("stop-running")
    assert lab.cli("delete", "stop-running").exit_code == 0


def test_a_machine_without_room_says_so_and_is_left_out_later(lab: Any, tmp_path: Path) -> None:
    # Nothing can be written there. (What is set where the batch script runs is set for all, unless they set it too.)
    lab.prolog({"n1": "TMPDIR=/sys", "n2": "TMPDIR=/tmp", "n3": "TMPDIR=/tmp"})
    try:
        lab.submit(tmp_path, "no-place-0", nodes=2)
        assert lab.end("no-place-0")["phase"] == "Failed", lab.story("no-place-0")
        # The machine at fault is named, and the other one did not wait for it.
        story = lab.story("no-place-0")
        assert "n1: this machine has no place" in story and "TRAINSHED_NODE_FOLDER" in story
        # Two more, and it is left out. (Slurm may give a job another machine; that one runs.)
        for number in range(1, 7):
            if len(lab.failures("n1")) >= 3:
                break
            lab.submit(tmp_path, f"no-place-{number}", steps=3)
            lab.end(f"no-place-{number}")
        assert len(lab.failures("n1")) == 3
        lab.submit(tmp_path, "elsewhere", steps=3)
        assert lab.end("elsewhere")["phase"] == "Completed", lab.story("elsewhere")
    finally:
        lab.prolog({})


def test_a_machine_whose_clock_is_wrong_harms_nothing(lab: Any, tmp_path: Path) -> None:
    # A runner that has to be fetched first begins anew, with the right clock.
    lab.submit(tmp_path, "bringer", steps=1)
    assert lab.end("bringer")["phase"] == "Completed", lab.story("bringer")
    before = time.time()
    lab.submit(tmp_path, "skewed", pool="skewed", nodes=2, steps=10)
    job = lab.end("skewed")
    assert job["phase"] == "Completed", lab.story("skewed")
    assert lab.steps("skewed", 1) == list(range(10))
    mirror = lab.path / "jobs" / job["id"] / "attempt-1" / "node-0"
    report = json.loads((mirror / "status.json").read_bytes())
    claim = json.loads((mirror / "claim.json").read_bytes())
    assert abs(claim["clock_lag"] + slurm_lab.SKEW) < 60
    times = [report["started_at"], *(entry["time"] for entry in report["timeline"]), report["ended_at"]]
    assert times == sorted(times) and before - 5 < times[0] and times[-1] < time.time() + 5


def test_a_stop_in_the_first_moments_outlives_the_controller(lab: Any, tmp_path: Path) -> None:
    lab.submit(tmp_path, "hasty", nodes=2, steps=600)
    lab.wait(lambda: lab.show("hasty")["phase"] == "Running", 120, "its start")
    lab.cluster.kill("slurmctld")
    assert lab.cli("stop", "hasty").exit_code == 0
    time.sleep(2)
    lab.cluster.start_controller()
    job = lab.end("hasty")
    assert (job["phase"], job["attempt"]) == ("Terminated", 1), lab.story("hasty")

    def is_gone() -> bool:
        return job["id"] not in lab.cluster.call("squeue", "-a", "-h", "-o", "%j", check=False).stdout

    lab.wait(is_gone, 120, "its end in Slurm")
    # A controller that finds processes which it does not remember drains their machines.
    lab.rest()
