"""Attempts are handed over beside the loop: each once at a time, and the loop keeps off them meanwhile."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from trainshed.control.loop import ControlLoop
from trainshed.control.submissions import Submissions
from trainshed.db.attempts import AttemptRow
from trainshed.db.engine import begin
from trainshed.db.jobs import change_job
from trainshed.db.nodes import replace_nodes
from trainshed.engines.engine import AttemptLaunch, NodeObservation
from trainshed.model.errors import Unavailable
from trainshed.model.flavor import Flavor, Node
from trainshed.model.phase import Detail, Phase
from trainshed.model.pools import Pool

POOL = Pool("lab", "slurm")


class Scheduler:
    """An engine with a queue of its own that takes its time."""

    name = "slurm"
    queues = True

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun: list[str] = []
        self.taken: list[str] = []
        self.fault: Exception | None = None
        self.described: list[str] = []

    def capacity(self) -> list[Node]:
        return [Node("n1", cpus=4, memory_mb=8000, engine="slurm", pool="lab")]

    def submit(self, launch: AttemptLaunch) -> None:
        self.begun.append(launch.job_id)
        assert self.gate.wait(240)
        self.taken.append(f"{launch.job_id}/{launch.attempt}")
        if self.fault is not None:
            raise self.fault

    def describe(self, job_id: str, attempt: int, nodes: int) -> list[NodeObservation]:
        self.described.append(job_id)
        is_there = f"{job_id}/{attempt}" in self.taken
        state = "queued" if is_there else "absent"
        return [NodeObservation(index, state, None, "It waits.") for index in range(nodes)]  # type: ignore[arg-type]

    def cancel(self, job_id: str, attempt: int, *, reason: str, outcome: str = "stopped") -> None:
        self.taken.append(f"cancel {job_id}")

    def discard(self, job_id: str, attempt: int) -> bool:
        return True


def _station(make_station: Any) -> tuple[Any, Scheduler]:
    station, scheduler = make_station(engine="slurm", pools=(POOL,)), Scheduler()
    station.control = replace(station.control, engines={"slurm": scheduler})
    return station, scheduler


def _pending(station: Any, **spec: Any) -> str:
    job_id: str = station.submit("", pool="lab", **spec)
    with begin(station.platform.engine) as connection:
        environment = {"engine": "python", "python": ""}
        changes = {"phase": Phase.PENDING, "detail": "queued", "environment": environment}
        assert change_job(connection, station.job(job_id), **changes) is not None
    return job_id


def test_an_attempt_is_handed_over_once_at_a_time(make_station: Any) -> None:
    station, scheduler = _station(make_station)
    job = station.job(_pending(station))
    attempt = AttemptRow(job.id, 1, "slurm", [], "submitting", 0.0)
    submissions = Submissions(station.control)
    for _ in range(3):
        submissions.begin(job, attempt, Flavor("cpu.1", "cpu", 0, 1, 1000), POOL)
    assert submissions.is_under_way(job.id, 1) and not submissions.is_under_way(job.id, 2)
    scheduler.gate.set()
    station.until(lambda: not submissions.is_under_way(job.id, 1))
    assert scheduler.taken == [f"{job.id}/1"]
    scheduler.fault = Unavailable("The scheduler sleeps.", hint="Wake it.")
    submissions.begin(job, attempt, Flavor("cpu.1", "cpu", 0, 1, 1000), POOL)
    station.until(lambda: not submissions.is_under_way(job.id, 1))
    assert station.job(job.id).wait == {"reason": "The scheduler sleeps.", "hint": "Wake it."}
    assert "The scheduler sleeps." in [event.message for event in station.events(job.id)]
    submissions.close()


def test_a_slow_scheduler_holds_up_nobody_and_a_stop_waits_for_it(make_station: Any) -> None:
    station, scheduler = _station(make_station)
    with begin(station.platform.engine) as connection:
        replace_nodes(connection, "slurm", scheduler.capacity())
    jobs = [_pending(station) for _ in range(6)]
    loop = ControlLoop(station.control)
    loop.pass_once()
    assert all(station.job(job_id).detail == Detail.IN_SLURM.value for job_id in jobs)
    station.until(lambda: sorted(scheduler.begun) == sorted(jobs[:4]))
    station.ask_stop(jobs[0])
    # While it is being handed over nobody can say that it was never started.
    loop.pass_once()
    assert scheduler.described == [] and not station.job(jobs[0]).phase.is_terminal
    # Of one that waits for its turn behind the others everybody can.
    station.ask_stop(jobs[5])
    loop.pass_once()
    assert station.job(jobs[5]).phase is Phase.TERMINATED
    assert scheduler.described == [jobs[5]] and scheduler.taken == []
    scheduler.gate.set()
    station.until(lambda: len(scheduler.taken) == 5)
    loop._submissions.close()
    loop.pass_once()
    assert sorted(scheduler.taken) == sorted([*(f"{job_id}/1" for job_id in jobs[:5]), f"cancel {jobs[0]}"])
    waits = [station.job(job_id).wait for job_id in jobs[1:5]]
    assert waits == [{"reason": "It waits.", "hint": ""}] * 4
    loop._doorbell.close()
    loop._creation.close()
