"""What real commands of Slurm 22.05 printed, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.engines.engine import Allocation
from trainshed.engines.slurm.answers import (
    JobEnd,
    expand_hosts,
    read_accounting,
    read_allocation,
    read_end,
    read_minutes,
    read_nodes,
    read_partitions,
    read_queue,
    read_setting,
)
from trainshed.engines.slurm.reasons import explain_end

CAPTURED = Path(__file__).parent / "captured"
GRES = {"nvidia": "gpu", "ascend": "npu"}


def captured(name: str) -> str:
    return (CAPTURED / name).read_text("utf-8")


def test_machines_with_devices_and_state() -> None:
    nodes = read_nodes(captured("nodes.txt"), "lab", "all", GRES)
    assert [(node.name, node.state) for node in nodes] == [
        ("n1", "ready"),
        ("n2", "ready"),
        ("n3", "drained"),
    ]
    assert nodes[2].reason == "disk broken, see ticket 7"
    first = nodes[0]
    assert (first.pool, first.engine, first.cpus, first.memory_mb, first.shareable) == (
        *("lab", "slurm", 8.0, 1000),
        False,
    )
    assert (first.count("nvidia"), first.count("ascend")) == (2, 8)
    assert [device.model for device in first.devices][:3] == ["a100", "a100", "ascend"]


def test_only_machines_of_the_partition() -> None:
    assert read_nodes(captured("nodes.txt"), "lab", "nowhere", GRES) == []
    assert len(read_nodes(captured("nodes.txt"), "lab", "", GRES)) == 3


@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("IDLE", "ready"),
        ("MIXED+PLANNED", "ready"),
        ("ALLOCATED", "ready"),
        ("IDLE+CLOUD", "ready"),
        ("IDLE*", "down"),
        ("DOWN*", "down"),
        ("DOWN+NOT_RESPONDING", "down"),
        ("ALLOCATED+DRAIN", "drained"),
        ("IDLE+MAINTENANCE+DRAIN", "drained"),
        ("UNKNOWN", "down"),
    ],
)
def test_states_of_machines(state: str, meaning: str) -> None:
    line = f"NodeName=n1 CPUTot=4 Gres=(null) RealMemory=1 State={state} Partitions=all"
    node = read_nodes(line, "p", "all", GRES)[0]
    assert (node.state, node.memory_mb, node.devices) == (meaning, 0, ())


def test_devices_in_other_spellings() -> None:
    line = "NodeName=n1 CPUTot=4 Gres=gpu:2(S:0-1),npu:ascend910:4(S:0),shard:8 State=IDLE Partitions=all"
    node = read_nodes(line, "p", "all", GRES)[0]
    assert (node.count("nvidia"), node.count("ascend")) == (2, 4)


def test_the_queue_with_a_strangers_name_in_it() -> None:
    jobs = {job.name: job for job in read_queue(captured("squeue.txt"))}
    assert len(jobs) == 15
    assert jobs["other|evil|name"].state == "RUNNING"
    assert jobs["trainshed-lab-aaaa-1"].hosts == "n[1-2]"
    held = jobs["trainshed-lab-held-1"]
    assert held.is_waiting and not held.is_over and held.reason == "JobHeldUser"
    assert jobs["trainshed-lab-failed-1"].is_over
    assert not jobs["trainshed-lab-aaaa-1"].is_over


def test_a_preempted_job_is_over() -> None:
    jobs = {job.name: job for job in read_queue(captured("squeue_preempted.txt"))}
    assert jobs["trainshed-lab-aaaa-1"].is_over
    # One that may be requeued waits again.
    assert jobs["trainshed-lab-bbbb-1"].is_waiting


def test_lines_that_are_no_jobs_are_left_out() -> None:
    assert read_queue("slurm_load_jobs error: x\n12_3|RUNNING|a|b|c|d|e|f\n\n") == []


def test_devices_of_a_job_on_each_machine() -> None:
    assert read_allocation(captured("job_npu_2_nodes.txt")) == [
        Allocation("n1", (0, 1, 2)),
        Allocation("n2", (0, 1, 2)),
    ]
    assert read_allocation(captured("job_gpu.txt")) == [Allocation("n1", (0,))]
    assert read_allocation(captured("job_gpu.txt"), ["npu"]) == [Allocation("n1", ())]


def test_devices_that_differ_from_machine_to_machine() -> None:
    text = (
        "   NodeList=n[1-2]\n     Nodes=n1 CPU_IDs=0 Mem=0 GRES=npu:ascend:3(IDX:3-5)\n"
        "     Nodes=n2 CPU_IDs=0 Mem=0 GRES=npu:ascend:3(IDX:0,2,7),gpu:1(IDX:1)\n"
    )
    assert read_allocation(text, ["npu"]) == [Allocation("n1", (3, 4, 5)), Allocation("n2", (0, 2, 7))]


def test_how_a_job_ended() -> None:
    end = read_end(captured("job_failed.txt"))
    assert end is not None
    assert (end.state, end.reason, end.exit_code, end.signal) == ("FAILED", "NonZeroExitCode", 81, 0)
    assert read_end("slurm_load_jobs error: Invalid job id specified") is None
    # It had to go and went by itself, within its GraceTime.
    text = captured("job_failed.txt").replace("PreemptTime=None", "PreemptTime=2026-11-16T03:05:47")
    end = read_end(text)
    assert end is not None and end.state == "PREEMPTED"


def test_accounting_finds_the_latest_of_a_name() -> None:
    text = (
        "7|COMPLETED|0:0|2026-01-01T00:00:00|trainshed-lab-x-1\n"
        "9|CANCELLED by 1000|0:15|2026-01-02T00:00:00|trainshed-lab-x-1\n"
        "8|FAILED|1:0|2026-01-03T00:00:00|trainshed-lab-x-11\n"
    )
    end = read_accounting(text, "trainshed-lab-x-1")
    assert end is not None and (end.state, end.reason, end.signal) == ("CANCELLED", "by 1000", 15)
    assert read_accounting(text, "trainshed-lab-y-1") is None


def test_a_setting_of_the_site() -> None:
    text = "Configuration data\nPreemptMode             = REQUEUE\nPreemptType             = preempt/qos\n"
    assert read_setting(text, "PreemptType") == "preempt/qos"
    assert read_setting(text, "Preempt") == read_setting("", "PreemptType") == ""


def test_partitions_by_name() -> None:
    partitions = read_partitions(captured("partitions.txt"))
    assert set(partitions) == {"all", "urgent", "short", "closed"}
    assert partitions["closed"]["State"] == "DOWN"
    assert partitions["all"]["Default"] == "YES"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("gpu[08-10,12],login", ["gpu08", "gpu09", "gpu10", "gpu12", "login"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("r[1-2]-a,b", ["r1-a", "r2-a", "b"]),
    ],
)
def test_host_lists(text: str, names: list[str]) -> None:
    assert expand_hosts(text) == names


def test_accounting_tells_ends_and_never_a_job_that_lives() -> None:
    # As `sacct -n -P -X -o SACCT_FORMAT` prints them.
    text = (
        "7|OUT_OF_MEMORY|0:125|2026-11-16T03:00:00|big\n"
        "8|NODE_FAIL|1:0|2026-11-16T03:00:01|fallen\n"
        "9|CANCELLED by 1000|0:15|2026-11-16T03:00:02|gone\n"
        "10|COMPLETED|0:0|2026-11-16T03:00:03|again\n"
        "11|RUNNING|0:0|2026-11-16T03:00:04|again\n"
        "12|PENDING|0:0|Unknown|waiting\n"
    )
    ends = {name: read_accounting(text, name) for name in ("big", "fallen", "gone")}
    assert ends["big"] == JobEnd("OUT_OF_MEMORY", "", 0, 125)
    assert ends["fallen"] == JobEnd("NODE_FAIL", "", 1, 0)
    assert ends["gone"] == JobEnd("CANCELLED", "by 1000", 0, 15)
    # The latest of that name has not ended, or the controller lost it before it could say so.
    assert read_accounting(text, "again") is None
    assert read_accounting(text, "waiting") is None
    assert explain_end(ends["big"], 0).code == "out_of_memory"
    assert explain_end(ends["fallen"], 0).code == "node_failed"
    assert explain_end(ends["gone"], 0).code == "ended_from_outside"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("UNLIMITED", 0), ("INFINITE", 0), ("", 0), ("30", 30), ("05:00", 5), ("00:05:00", 5), ("02:30:00", 150),
        ("1-00:30:00", 1470), ("2-12", 3600),
    ],
)  # fmt: skip
def test_limits(text: str, minutes: int) -> None:
    assert read_minutes(text) == minutes
