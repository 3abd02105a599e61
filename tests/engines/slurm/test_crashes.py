"""What happens to attempts when parts of the cluster die, and when somebody else meddles. A cluster of its own."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from trainshed.engines.slurm.batch_script import job_name
from trainshed.engines.slurm.commands import Commands
from trainshed.model.errors import Unavailable

pytestmark = pytest.mark.slow


def run_to_the_end(yard: Any, launch: Any, seconds: float = 120.0) -> Any:
    """Do what the control loop does until the attempt has ended; the nodes as they are then."""

    def act() -> None:
        states = {node.state for node in yard.look(launch)}
        # The loop logs that Slurm does not answer, and comes back.
        with contextlib.suppress(Unavailable):
            if "absent" in states:
                yard.engine.submit(launch)
            elif "lost" in states:
                yard.engine.salvage(launch.job_id, launch.attempt)

    return yard.until(launch, "ended", seconds, act)


def test_a_controller_killed_right_after_a_submission_loses_nothing(yard: Any) -> None:
    launches = [yard.submit(f"early{number}") for number in range(3)]
    yard.cluster.kill("slurmctld")
    # Nobody answers now: what has not begun is said to wait, what has begun is believed to go on.
    assert {node.state for launch in launches for node in yard.look(launch)} <= {"queued", "alive", "ended"}
    time.sleep(1)
    yard.cluster.start_controller()
    for launch in launches:
        seen = run_to_the_end(yard, launch)
        assert [node.report.ending.outcome for node in seen] == ["completed"]
        assert len(yard.starts(launch)) == 1


def test_a_controller_killed_while_jobs_run_is_not_noticed_by_them(yard: Any) -> None:
    yard.work = "wait"
    launch = yard.submit("late", 2)
    yard.until(launch, "alive")
    yard.until_reported(launch)
    # Only when it has saved what it knows: before, it loses even jobs that run.
    saved = yard.cluster.folder / "state" / "job_state"
    before = saved.stat().st_mtime_ns if saved.exists() else 0
    name = job_name(yard.platform, "late", 1)
    yard.cluster.call("scontrol", "update", f"jobname={name}", "comment=saved")
    deadline = time.monotonic() + 90
    while not saved.exists() or saved.stat().st_mtime_ns == before or b"saved" not in saved.read_bytes():
        assert time.monotonic() < deadline, "Slurm does not save its jobs"
        time.sleep(0.2)
    yard.cluster.kill("slurmctld")
    time.sleep(1)
    assert [node.state for node in yard.look(launch)] == ["alive", "alive"]
    # Another platform process that knows nothing yet says the same.
    assert [node.state for node in yard.open().describe("late", 1, 2)] == ["alive", "alive"]
    yard.cluster.start_controller()
    yard.until(launch, "alive")
    deadline = time.monotonic() + 90
    while not yard.cluster.call("squeue", "-h", check=False).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    while True:
        with contextlib.suppress(Unavailable):
            yard.engine.cancel("late", 1, reason="enough")
            break
        assert time.monotonic() < deadline
    seen = run_to_the_end(yard, launch)
    assert [node.report.ending.outcome for node in seen] == ["stopped", "stopped"]
    assert len(yard.starts(launch)) == len(yard.starts(launch, 1)) == 1


def test_a_job_that_is_twice_in_slurm_runs_once(yard: Any) -> None:
    yard.work = "wait"
    launch = yard.submit("double")
    yard.until(launch, "alive")
    name = job_name(yard.platform, "double", 1)
    yard.cluster.call("sbatch", f"--job-name={name}", "--output=/dev/null", "--wrap=sleep 100")
    deadline = time.monotonic() + 90
    while yard.cluster.call("squeue", "-h", f"--name={name}").stdout.count("\n") != 1:
        yard.look(launch)
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert [node.state for node in yard.look(launch)] == ["alive"]


def test_a_job_cancelled_in_slurm_ends_from_outside(yard: Any) -> None:
    yard.work = "wait"
    launch = yard.submit("outside", 2)
    yard.until(launch, "alive")
    yard.until_reported(launch)
    yard.cluster.call("scancel", f"--name={job_name(yard.platform, 'outside', 1)}")
    seen = run_to_the_end(yard, launch)
    assert {node.report.ending.code for node in seen} == {"ended_from_outside"}


def test_a_machine_that_dies_ends_the_attempt_as_its_fault(yard: Any) -> None:
    yard.work = "wait"
    launch = yard.submit("lostnode", 2)
    yard.until(launch, "alive")
    yard.until_reported(launch)
    number = int(yard.starts(launch, 1)[0].split()[1].removeprefix("n"))
    yard.cluster.kill("slurmd", number)
    try:
        seen = run_to_the_end(yard, launch, 150)
    finally:
        yard.cluster.start_node(number)
    assert "node_failed" in {node.report.ending.code for node in seen}
    assert {node.report.ending.cause for node in seen} == {"node"}


def test_without_munge_jobs_wait_with_the_reason_and_run_later(yard: Any) -> None:
    launch = yard.launch("munge")
    (yard.cluster.folder / "munge.sock").rename(yard.cluster.folder / "munge.away")
    try:
        with pytest.raises(Unavailable) as told:
            yard.engine.submit(launch)
        deadline = time.monotonic() + 90
        while "MUNGE does not run" not in told.value.message:
            assert time.monotonic() < deadline, told.value
            with pytest.raises(Unavailable) as told:
                yard.engine.submit(launch)
        assert "munged" in told.value.hint
    finally:
        (yard.cluster.folder / "munge.away").rename(yard.cluster.folder / "munge.sock")
    seen = run_to_the_end(yard, launch)
    assert seen[0].report.ending.outcome == "completed" and len(yard.starts(launch)) == 1


@pytest.mark.parametrize("state", ["inactive", "drain"])
def test_a_partition_that_takes_no_jobs_is_waited_for(
    yard: Any, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr("trainshed.engines.slurm.attempt_folder._UNCONFIRMED_SECONDS", 90.0)
    yard.cluster.call("scontrol", "update", "partitionname=short", f"state={state}")
    try:
        launch = yard.launch("shut", pool="short")
        with pytest.raises(Unavailable, match="takes no jobs: it is inactive or drained"):
            yard.engine.submit(launch)
        # While it is waited for, the reason stays the same.
        seen = yard.look(launch)[0]
        assert (seen.state, "takes no jobs" in seen.reason, "another pool" in seen.hint) == (
            "queued",
            True,
            True,
        )
    finally:
        yard.cluster.call("scontrol", "update", "partitionname=short", "state=up")
    monkeypatch.setattr("trainshed.engines.slurm.attempt_folder._UNCONFIRMED_SECONDS", 1.0)
    assert run_to_the_end(yard, launch)[0].report.ending.outcome == "completed"
    assert len(yard.starts(launch)) == 1


def test_a_site_that_cuts_job_names_has_each_job_once(yard: Any, tmp_path: Path) -> None:
    # As a plugin of the site does, or a program in the place of sbatch.
    real = yard.commands.find("sbatch")
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.write_text(f'#!/bin/sh\nexec {real} --job-name=cut-short "$@"\n')
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{yard.cluster.environment['PATH']}"
    yard.commands = Commands({**yard.cluster.environment, "PATH": path})
    yard.engine = yard.open()
    yard.work = "wait"
    launch = yard.submit("renamed")
    yard.until(launch, "alive")
    assert yard.cluster.call("squeue", "-h", "-o", "%j").stdout.split() == ["cut-short"]
    # A platform that has started again knows it as well.
    yard.engine = yard.open()
    yard.until(launch, "alive")
    yard.until_started(launch)
    yard.engine.cancel("renamed", 1, reason="enough")
    assert run_to_the_end(yard, launch)[0].report.ending.outcome == "stopped"
    assert len(yard.starts(launch)) == 1


def test_a_stop_right_after_the_start_outlives_the_controller(
    yard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainshed.engines.slurm.engine._LEFT_OVER_SECONDS", 1.0)
    yard.work = "wait"
    launches = [yard.submit(f"hasty{number}", 1) for number in range(2)]
    yard.until(launches[0], "alive")
    yard.cluster.kill("slurmctld")
    for launch in launches:
        # Nobody in Slurm hears of it now; the runners do.
        yard.engine.cancel(launch.job_id, 1, reason="enough")
    time.sleep(2)
    yard.cluster.start_controller()
    for launch in launches:

        def act(launch: Any = launch) -> None:
            states = {node.state for node in yard.look(launch)}
            with contextlib.suppress(Unavailable):
                yard.engine.cancel(launch.job_id, 1, reason="enough")
                if "lost" in states:
                    yard.engine.salvage(launch.job_id, 1)

        deadline = time.monotonic() + 120
        # Never started, or ended: never left running.
        while yard.look(launch)[0].state not in ("ended", "absent"):
            act()
            assert time.monotonic() < deadline, (yard.look(launch), yard.queue())
            time.sleep(0.2)
        assert len(yard.starts(launch)) <= 1
    deadline = time.monotonic() + 90
    while yard.cluster.call("squeue", "-h", check=False).stdout:
        # What the controller remembers wrongly is cancelled by the regular look at the machines.
        yard.engine.capacity()
        assert time.monotonic() < deadline, yard.queue()
        time.sleep(0.5)


def copy_state(state: Path, target: Path, deadline: float) -> None:
    """Copy what a controller saves, whole: it replaces its files while it runs."""
    while True:
        try:
            shutil.copytree(state, target, ignore=shutil.ignore_patterns("*.new"))
            return
        except shutil.Error:
            shutil.rmtree(target)
            assert time.monotonic() < deadline, "Slurm's state cannot be copied"
            time.sleep(0.1)


def test_what_an_old_state_brings_back_is_cancelled(yard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state = yard.cluster.folder / "state"
    launch = yard.submit("revenant", pool="closed")
    yard.until(launch, "queued")
    name = job_name(yard.platform, "revenant", 1)
    deadline = time.monotonic() + 90
    while name.encode() not in (state / "job_state").read_bytes():
        assert time.monotonic() < deadline, "Slurm does not save its jobs"
        time.sleep(0.3)
    copy_state(state, state.with_name("old"), deadline)
    yard.engine.cancel("revenant", 1, reason="enough")
    run_to_the_end(yard, launch)
    yard.cluster.kill("slurmctld")
    shutil.rmtree(state)
    state.with_name("old").rename(state)
    yard.cluster.start_controller()

    def states() -> str:
        return str(
            yard.cluster.call("squeue", "-h", f"--name={name}", "-o", "%T", check=False).stdout
        ).strip()

    while states() != "PENDING":
        assert time.monotonic() < deadline + 30, yard.queue()
        time.sleep(0.2)
    # As long as it may be a matter of moments, nothing is done about it.
    assert yard.engine.capacity() and states() == "PENDING"
    monkeypatch.setattr("trainshed.engines.slurm.engine._LEFT_OVER_SECONDS", 0.0)
    assert yard.engine.capacity()
    while states():
        assert time.monotonic() < deadline + 60, yard.queue()
        time.sleep(0.2)
    assert yard.starts(launch) == []
