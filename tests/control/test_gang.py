"""Several nodes are one thing: they start together, end together, and are started again together or not at all."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.phase import Phase

WAIT = """
import os, pathlib, signal, sys, time
attempt, node = os.environ["TRAINSHED_ATTEMPT"], os.environ["TRAINSHED_NODE"]
print("begun", attempt, node, flush=True)
if attempt == "1":
    signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(1)))
    time.sleep(60)
"""


def wait_for_line(station: Any, job_id: str, node: int, line: str) -> None:
    log = station.run_folder(job_id, 1, node).rank_log(node)
    station.until(lambda: log.exists() and line in log.read_text(), what=f"node {node} never said {line!r}")


def kill_runner(station: Any, job_id: str, node: int) -> int:
    pid = int(json.loads(station.run_folder(job_id, 1, node).status.read_text())["pid"])
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_runner_of_one_node_ends_the_whole_attempt(station: Any, victim: int) -> None:
    job_id = station.submit(WAIT, nodes=2)
    for node in (0, 1):
        wait_for_line(station, job_id, node, "begun 1")
    kill_runner(station, job_id, victim)
    job = station.wait(job_id)
    assert job.phase is Phase.FAILED
    assert (job.ending["cause"], job.ending["code"]) == ("platform", "runner_lost")
    assert job.ending["node"] == victim
    (attempt,) = station.attempts(job_id)
    assert [report["ending"]["outcome"] for report in attempt.reports] == [
        "failed" if node == victim else "stopped" for node in (0, 1)
    ]
    other = 1 - victim
    assert b"asked to end" in station.log(job_id, f"rank-{other}", node=other)


@pytest.mark.slow
def test_a_job_with_restarts_starts_again_as_a_whole(station: Any) -> None:
    job_id = station.submit(WAIT, nodes=2, restarts=1)
    for node in (0, 1):
        wait_for_line(station, job_id, node, "begun 1")
    kill_runner(station, job_id, 1)
    assert station.wait(job_id).phase is Phase.COMPLETED
    first, second = station.attempts(job_id)
    assert first.ending["code"] == "runner_lost"
    (told,) = [event.message for event in station.events(job_id) if "back to the queue" in event.message]
    assert "was killed" in told and "Rerun" not in told
    assert [report["ending"]["outcome"] for report in second.reports] == ["completed", "completed"]


def test_the_others_end_while_the_control_loop_is_away(station: Any) -> None:
    job_id = station.submit(WAIT, nodes=2)
    for node in (0, 1):
        wait_for_line(station, job_id, node, "begun 1")
    station.halt()
    kill_runner(station, job_id, 1)
    status = station.run_folder(job_id, 1, 0).status
    station.until(lambda: json.loads(status.read_text())["ending"] is not None, what="node 0 goes on alone")
    station.start()
    job = station.wait(job_id)
    assert (job.phase, job.ending["code"]) == (Phase.FAILED, "runner_lost")


def test_a_dead_keeper_is_the_platforms_fault(station: Any) -> None:
    job_id = station.submit(WAIT, nodes=2, restarts=1)
    for node in (0, 1):
        wait_for_line(station, job_id, node, "begun 1")
    runner = int(json.loads(station.run_folder(job_id, 1, 0).status.read_text())["pid"])
    (keeper,) = [pid for pid in children_of(runner) if "bwrap" not in (command_of(pid) or "bwrap")]
    os.kill(keeper, signal.SIGKILL)
    assert station.wait(job_id).phase is Phase.COMPLETED
    assert [attempt.ending and attempt.ending["code"] for attempt in station.attempts(job_id)] == [
        "gang_lost",
        "",
    ]


def test_a_node_that_cannot_be_prepared_keeps_the_others_from_starting(station: Any) -> None:
    job_id = station.submit("print('begun')", nodes=2, inputs={"data": "obs://results/nothing/"})
    job = station.wait(job_id)
    assert (job.phase, job.ending["cause"]) == (Phase.FAILED, "user")
    assert station.log(job_id, "rank-0") == station.log(job_id, "rank-1", node=1) == b""


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
