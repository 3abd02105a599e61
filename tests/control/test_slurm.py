"""Jobs that go to a real Slurm: the control loop, the engine and the cluster are real, the runner is a small script."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import slurm_yard
from trainshed.db.engine import read
from trainshed.db.nodes import all_nodes
from trainshed.engines.engine import AttemptLaunch, RemoteStart
from trainshed.engines.slurm.commands import Commands
from trainshed.engines.slurm.engine import SlurmEngine
from trainshed.model.phase import Phase
from trainshed.model.pools import Pool
from trainshed.services.explanation import explain_wait
from trainshed.services.slurm import platform_tag

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with slurm_yard.open_cluster() as running:
        yield running


@pytest.fixture
def slurm(cluster: Any, make_station: Any) -> Iterator[Any]:
    """A platform whose jobs go to the cluster; `work` says what the runner's stand-in does."""
    pools = tuple(
        Pool(name, "slurm", partition, python=sys.executable)
        for name, partition in (("lab", "all"), ("urgent", "urgent"), ("closed", "closed"))
    )
    pools += (Pool("odd", "slurm", "all", options=("--constraint=nothing-has-it",)),)
    station = make_station(engine="slurm", pools=pools)
    station.work = "done"

    def start(launch: AttemptLaunch) -> RemoteStart:
        mirror = station.home.jobs / launch.job_id / f"attempt-{launch.attempt}"
        work = station.work if isinstance(station.work, str) else station.work[launch.attempt]
        return RemoteStart(slurm_yard.START, {"MIRROR": str(mirror), "WORK": work})

    engine = SlurmEngine(
        pools,
        start,
        station.home,
        time.time,
        platform=platform_tag(station.platform),
        commands=Commands(cluster.environment),
    )
    station.control = replace(station.control, engines={**station.control.engines, "slurm": engine})
    station.engine = engine
    station.start()
    station.until(lambda: _machines(station) > 0, what="no machines")
    yield station
    station.halt()
    for signal in (("-s", "KILL", "-b"), ()):
        cluster.call("scancel", "-u", "root", *signal, check=False)


def _machines(station: Any) -> int:
    with read(station.platform.engine) as connection:
        return len(all_nodes(connection))


def test_a_job_waits_in_slurm_runs_and_ends(slurm: Any) -> None:
    slurm.work = "wait"
    job_id = slurm.submit("", nodes=2, pool="lab")
    slurm.until(lambda: slurm.job(job_id).phase is Phase.RUNNING, 120)
    assert slurm.attempts(job_id)[0].engine == "slurm"
    slurm.until(lambda: slurm.job(job_id).detail == "training", 120)
    slurm.ask_stop(job_id)
    job = slurm.wait(job_id)
    assert job.phase is Phase.TERMINATED and "stopped by a test" in str(job.ending)
    slurm.work = "done"
    again = slurm.submit("", pool="lab")
    assert slurm.wait(again).phase is Phase.COMPLETED
    with read(slurm.platform.engine) as connection:
        assert {node.engine for node in all_nodes(connection)} == {"slurm"}


def test_a_job_that_cannot_start_says_why_and_is_stopped_at_once(slurm: Any) -> None:
    job_id = slurm.submit("", pool="closed")

    def reason() -> str:
        with read(slurm.platform.engine) as connection:
            pools = slurm.platform.settings.all_pools
            wait = explain_wait(connection, slurm.job(job_id), time.time(), pools)
        return wait.reason if wait else ""

    slurm.until(lambda: "partition takes jobs but starts none" in reason(), 120)
    assert (slurm.job(job_id).phase, slurm.job(job_id).detail) == (Phase.PENDING, "queued in slurm")
    slurm.ask_stop(job_id)
    assert slurm.wait(job_id).phase is Phase.TERMINATED


def test_a_job_that_slurm_refuses_fails_with_the_reason(slurm: Any) -> None:
    job_id = slurm.submit("", pool="odd")
    job = slurm.wait(job_id)
    assert job.phase is Phase.FAILED and job.ending["code"] == "slurm_refused"
    assert "Invalid feature specification" in job.ending["message"]


def test_a_preempted_job_starts_again_and_a_failed_start_is_told(slurm: Any) -> None:
    slurm.work = {1: "wait", 2: "done"}
    low = slurm.submit("", nodes=2, pool="lab", flavor="cpu.8", restarts=1)
    slurm.until(lambda: slurm.job(low).detail == "training", 120)
    slurm.work = "done"
    high = slurm.submit("", nodes=3, pool="urgent", flavor="cpu.8")
    slurm.work = {1: "done", 2: "done"}
    assert slurm.wait(high).phase is Phase.COMPLETED
    assert slurm.wait(low).phase is Phase.COMPLETED
    first, second = slurm.attempts(low)
    assert first.ending["code"] == "preempted" and second.ending["outcome"] == "completed"
    slurm.work = "exit 81"
    broken = slurm.submit("", pool="lab")
    job = slurm.wait(broken)
    assert job.phase is Phase.FAILED and job.ending["code"] == "no_python"


def test_a_restart_of_the_platform_finds_its_jobs_again(slurm: Any) -> None:
    slurm.work = "wait"
    job_id = slurm.submit("", pool="lab")
    slurm.until(lambda: slurm.job(job_id).detail == "training", 120)
    slurm.halt()
    slurm.start()
    slurm.until(lambda: slurm.job(job_id).phase is Phase.RUNNING)
    slurm.ask_stop(job_id)
    assert slurm.wait(job_id).phase is Phase.TERMINATED
    assert len(slurm.attempts(job_id)) == 1
