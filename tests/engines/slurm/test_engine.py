"""The engine on a real cluster, with a small script in the runner's place."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trainshed.engines.engine import EXIT_NO_PYTHON, Allocation
from trainshed.model.errors import Unavailable
from trainshed.model.flavor import Flavor

pytestmark = pytest.mark.slow

NPU = Flavor("ascend.3", "ascend", 3, 1, 0)


def test_capacity_is_the_pool_s_machines(yard: Any) -> None:
    nodes = [node for node in yard.engine.capacity() if node.pool == "lab"]
    assert [node.name for node in nodes] == ["n1", "n2", "n3"]
    assert all(node.state == "ready" and node.count("ascend") == 8 for node in nodes)
    yard.cluster.call("scontrol", "update", "nodename=n3", "state=drain", "reason=a broken fan")
    try:
        drained = next(node for node in yard.engine.capacity() if node.name == "n3")
        assert (drained.state, drained.reason) == ("drained", "a broken fan")
    finally:
        yard.cluster.call("scontrol", "update", "nodename=n3", "state=resume")


def test_an_attempt_on_two_nodes_runs_once_on_each(yard: Any) -> None:
    launch = yard.launch("two", 2)
    assert [node.state for node in yard.look(launch)] == ["absent", "absent"]
    yard.engine.submit(launch)
    yard.engine.submit(launch)
    seen = yard.until(launch, "ended")
    assert [node.report.ending.outcome for node in seen] == ["completed", "completed"]
    assert len(yard.starts(launch)) == len(yard.starts(launch, 1)) == 1
    variables = yard.variables(launch)
    assert variables["SECRET"] == "hunter2"
    # Nothing of the platform's own environment reaches a job.
    assert not any(name.startswith(("TRAINSHED_HOME", "PYTEST", "VIRTUAL_ENV")) for name in variables)
    # The same again, by an engine that knows nothing but what lies on disk.
    again = yard.open()
    again.submit(launch)
    assert [node.state for node in again.describe("two", 1, 2)] == ["ended", "ended"]
    deadline = time.monotonic() + 90
    while not again.discard("two", 1):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert not (yard.home.jobs / "two").exists()


def test_devices_are_read_back(yard: Any) -> None:
    yard.work = "wait"
    launch = yard.submit("npu", 2, NPU)
    yard.until(launch, "alive")
    yard.until_started(launch)
    other = yard.submit("npu2", 1, NPU)
    yard.until(other, "alive")
    first = yard.engine.allocation("npu", 1)
    assert [item.node for item in first] == sorted(item.node for item in first) and len(first) == 2
    assert all(len(item.devices) == 3 for item in first)
    second = yard.engine.allocation("npu2", 1)[0]
    same = [item for item in first if item.node == second.node]
    assert len(second.devices) == 3 and not any(set(item.devices) & set(second.devices) for item in same)
    assert yard.engine.allocation("nothing", 1) == []
    assert isinstance(second, Allocation)


def test_what_waits_says_why_and_is_cancelled_at_once(yard: Any) -> None:
    launch = yard.submit("closed", pool="closed")
    seen = yard.until(launch, "queued")
    deadline = time.monotonic() + 90
    while "down" not in (seen := yard.look(launch))[0].reason:
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)
    assert "the partition" in seen[0].reason.lower() and "administrator" in seen[0].hint
    yard.engine.cancel("closed", 1, reason="not wanted")
    yard.until(launch, "lost")
    yard.engine.salvage("closed", 1)
    assert yard.look(launch)[0].report.ending.code == "ended_from_outside"
    assert yard.starts(launch) == []


def test_a_held_job_is_explained(yard: Any) -> None:
    yard.work = "wait"
    blocker = yard.submit("blocker", 3, Flavor("cpu.8", "cpu", 0, 8, 0))
    yard.until(blocker, "alive")
    launch = yard.submit("held")
    yard.until(launch, "queued")
    yard.cluster.call(
        "scontrol", "hold", f"jobname={yard.platform and 'trainshed-' + yard.platform + '-held-1'}"
    )
    deadline = time.monotonic() + 90
    while "held" not in yard.look(launch)[0].reason:
        assert time.monotonic() < deadline, yard.look(launch)
        time.sleep(0.2)


def test_a_stop_reaches_the_runner_through_the_mirror(yard: Any) -> None:
    yard.work = "wait"
    launch = yard.submit("stop", 2)
    yard.until(launch, "alive")
    yard.until_reported(launch)
    yard.engine.cancel("stop", 1, reason="enough")
    seen = yard.until(launch, "ended")
    assert [node.report.ending.outcome for node in seen] == ["stopped", "stopped"]


def test_a_runner_that_does_not_obey_is_ended_by_slurm(yard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainshed.engines.slurm.attempt_folder._STOP_MARGIN", 1.0)
    yard.work = "deaf"
    launch = yard.submit("deaf", grace=0)
    yard.until(launch, "alive")
    yard.until_started(launch)
    yard.until(launch, "lost", act=lambda: yard.engine.cancel("deaf", 1, reason="enough"))
    yard.engine.salvage("deaf", 1)
    assert yard.until(launch, "ended")[0].report.ending.outcome == "failed"


def test_what_slurm_refuses_ends_the_attempt_with_its_reason(yard: Any) -> None:
    launch = yard.submit("refused", 2, pool="gone")
    seen = yard.look(launch)
    assert [node.state for node in seen] == ["ended", "ended"]
    ending = seen[0].report.ending
    assert ending.code == "slurm_refused" and "no such partition" in ending.message
    huge = yard.submit("huge", 1, Flavor("ascend.99", "ascend", 99, 1, 0))
    assert "No machine" in yard.look(huge)[0].report.ending.message


def test_a_time_limit_beyond_the_partition_s_is_explained(yard: Any) -> None:
    launch = yard.submit("long", pool="short", seconds=7200)
    seen = yard.until(launch, "queued")
    deadline = time.monotonic() + 90
    while "time limit" not in seen[0].reason:
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)
        seen = yard.look(launch)


def test_a_runner_that_dies_is_lost_with_the_reason(yard: Any) -> None:
    yard.work = f"exit {EXIT_NO_PYTHON}"
    launch = yard.submit("nopython")
    yard.until(launch, "lost")
    yard.engine.salvage("nopython", 1)
    ending = yard.look(launch)[0].report.ending
    assert (ending.code, ending.cause) == ("no_python", "platform")


def test_machines_that_fail_again_and_again_are_left_out(yard: Any) -> None:
    yard.work = "exit 9"
    yard.cluster.call("scontrol", "update", "nodename=n[2-3]", "state=drain", "reason=test")
    try:
        for number in range(3):
            launch = yard.submit(f"bad{number}")
            yard.until(launch, "lost")
            yard.engine.salvage(f"bad{number}", 1)
            # Seen again and again, it counts once.
            assert [yard.look(launch)[0].state for _ in range(3)] == ["ended"] * 3
    finally:
        yard.cluster.call("scontrol", "update", "nodename=n[2-3]", "state=resume")
    assert {node.name: node.state for node in yard.engine.capacity()}["n1"] == "drained"
    assert "--exclude=n1" in yard.engine.dry_run(yard.launch("next"))
    yard.work = "done"
    launch = yard.submit("next")
    yard.until(launch, "ended")
    assert yard.starts(launch)[0].split()[1] != "n1"


@pytest.mark.parametrize("work", ["wait", "crash"])
def test_a_preempted_attempt_ends_as_the_machines_fault(yard: Any, work: str) -> None:
    yard.work = work
    launch = yard.submit("low", 2, Flavor("cpu.8", "cpu", 0, 8, 0))
    yard.until(launch, "alive")
    yard.until_reported(launch)
    yard.work = "done"
    high = yard.submit("high", 3, Flavor("cpu.8", "cpu", 0, 8, 0), pool="urgent")

    def salvage() -> None:
        if any(node.state == "lost" for node in yard.look(launch)):
            yard.engine.salvage("low", 1)
            yard.engine.cancel("low", 1, reason="Another node was lost.")

    seen = yard.until(launch, "ended", act=salvage)
    assert {(node.report.ending.code, node.report.ending.cause) for node in seen} == {("preempted", "node")}
    yard.until(high, "ended")
    # It was not given a second life by Slurm.
    assert len(yard.starts(launch)) == 1


def test_a_single_machine_has_a_step_only_where_slurm_warns(yard: Any) -> None:
    launch = yard.launch("alone")
    assert "srun" not in yard.engine.dry_run(launch)
    assert "srun --nodes=2" in yard.engine.dry_run(yard.launch("two", 2))
    yard.cluster.call("scontrol", "update", "PartitionName=all", "GraceTime=10")
    try:
        yard.engine.capacity()
        assert "srun --nodes=1" in yard.engine.dry_run(launch)
    finally:
        yard.cluster.call("scontrol", "update", "PartitionName=all", "GraceTime=0")
    yard.engine.capacity()
    assert "srun" not in yard.engine.dry_run(launch)
    # A partition of which nothing is known may warn as well.
    assert "srun" in yard.engine.dry_run(yard.launch("unknown", pool="gone"))


def test_a_dry_run_shows_the_script_and_no_secret(yard: Any) -> None:
    shown = yard.engine.dry_run(yard.launch("dry", 2))
    assert "#SBATCH --nodes=2" in shown and "SECRET" in shown and "hunter2" not in shown
    assert not (yard.home.jobs / "dry").exists()


def test_without_slurm_there_is_a_clear_fault(yard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(yard.commands._environment, "PATH", "/nowhere")
    with pytest.raises(Unavailable, match="squeue is not installed"):
        yard.engine.capacity()


def test_the_check_goes_through_every_pool(yard: Any) -> None:
    from trainshed.daemon.slurm_check import examine_slurm
    from trainshed.model.pools import Pool
    from trainshed.model.settings import Settings

    pools = (
        Pool("lab", "slurm", "all"),
        Pool("gone", "slurm", "gone"),
        Pool("closed", "slurm", "closed"),
        Pool("fussy", "slurm", "all", options=("--constraint=nothing-has-it",)),
    )
    findings = examine_slurm(Settings(pools=pools), yard.commands)
    told = {(item.level, item.subject, item.message.split(":")[0]) for item in findings}
    assert ("ok", "pool lab", "Slurm takes jobs as the platform's own account") in told
    assert ("bad", "pool gone", "there is no partition 'gone'") in told
    assert ("warn", "pool closed", "the partition closed is down") in told
    assert any(level == "bad" and subject == "pool fussy" for level, subject, _ in told)
    assert all(item.fix for item in findings if item.level == "bad")
