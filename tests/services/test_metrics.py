"""Metrics: from the run folder while the job runs, from the archive afterwards, few points of many."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from trainshed.db.attempts import AttemptRow, insert_attempt
from trainshed.db.engine import begin
from trainshed.model.errors import InvalidInput, NotFound
from trainshed.model.phase import Phase
from trainshed.services.identity import Caller
from trainshed.services.jobs import JobView
from trainshed.services.metrics import job_metrics, system_metrics
from trainshed.services.platform import Platform


@pytest.fixture
def job(platform: Platform, ann: Caller, submit: Callable[..., JobView], advance: Any) -> JobView:
    """A running job of two nodes."""
    job = submit(ann, secrets={"KEY": "geheim-123"})
    advance(job.id, Phase.PENDING, Phase.RUNNING, attempt=1)
    with begin(platform.engine) as connection:
        insert_attempt(connection, AttemptRow(job.id, 1, "local", [{"devices": []}] * 2, "running", 1.0))
    return job


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_points_of_the_lowest_rank_are_shown(platform: Platform, ann: Caller, job: JobView) -> None:
    assert job_metrics(platform, ann, job.id) == []
    for node in (0, 1):
        folder = platform.home.run_folder(job.id, 1, node)
        folder.path.mkdir(parents=True)
        records = [
            {
                "time": 10.0 + step,
                "rank": node,
                "name": "loss",
                "value": 1 / (step + 1),
                "step": step,
                "epoch": 1,
            }
            for step in range(5)
        ]
        folder.metrics.write_bytes(lines(*records))
    with platform.home.run_folder(job.id, 1, 1).metrics.open("ab") as file:
        file.write(lines({"time": 1, "rank": 1, "name": "only-here", "value": 3}))
        file.write(lines({"time": 1, "rank": 1, "name": "of geheim-123", "value": 3}))
        file.write(b'junk\n[1]\n{"name": 5}\n{"name": "x", "value": "y"}\n{"name": "loss", "value": 77')
    found = {series.name: series for series in job_metrics(platform, ann, job.id)}
    assert set(found) == {"loss", "only-here", "of ****"}
    assert found["loss"].count == 5
    first = found["loss"].points[0]
    assert (first.time, first.value, first.step, first.epoch, first.rank) == (10.0, 1.0, 0, 1.0, 0)
    assert {point.rank for point in found["loss"].points} == {0}
    assert [series.name for series in job_metrics(platform, ann, job.id, ["loss", "nothing"])] == ["loss"]


def test_archived_points_are_the_same(platform: Platform, ann: Caller, job: JobView) -> None:
    platform.store.ensure_bucket(".jobs")
    data = lines(
        {"time": 1, "rank": 0, "name": "loss", "value": "nan"},
        {"time": 2, "rank": 0, "name": "loss", "value": 2},
    )
    platform.store.put(".jobs", f"{job.id}/attempt-1/node-0/metrics.jsonl", data)
    (series,) = job_metrics(platform, ann, job.id)
    assert math.isnan(series.points[0].value)
    assert series.points[1].value == 2.0


def test_system_metrics_are_flat_series_per_node(platform: Platform, ann: Caller, job: JobView) -> None:
    for node in (0, 1):
        folder = platform.home.run_folder(job.id, 1, node)
        folder.path.mkdir(parents=True)
        devices = [{"kind": "nvidia", "index": 1, "utilization": 50 + node, "model": "x"}]
        folder.system_metrics.write_bytes(
            lines(*({"time": t, "cpu": 0.5, "memory_bytes": 1 << 30, "devices": devices} for t in (1.0, 2.0)))
        )
    found = {
        series.name: [point.value for point in series.points]
        for series in system_metrics(platform, ann, job.id)
    }
    assert found["node-0/cpu"] == [0.5, 0.5]
    assert found["node-1/nvidia-1/utilization"] == [51.0, 51.0]
    assert set(found) == {
        f"node-{node}/{name}" for node in (0, 1) for name in ("cpu", "memory_bytes", "nvidia-1/utilization")
    }


def test_bad_questions_are_refused(platform: Platform, ann: Caller, bob: Caller, job: JobView) -> None:
    for limit in (0, -1, 10**9):
        with pytest.raises(InvalidInput):
            job_metrics(platform, ann, job.id, limit=limit)
    with pytest.raises(NotFound):
        job_metrics(platform, ann, job.id, attempt=7)
    with pytest.raises(NotFound):
        job_metrics(platform, bob, job.id)
    with pytest.raises(NotFound):
        system_metrics(platform, bob, job.id)


def test_a_job_that_invents_endless_names_fills_no_memory(
    platform: Platform, ann: Caller, job: JobView
) -> None:
    folder = platform.home.run_folder(job.id, 1, 0)
    folder.path.mkdir(parents=True)
    folder.metrics.write_bytes(
        lines(*({"time": 1, "rank": 0, "name": f"n{number}", "value": 1} for number in range(2000)))
        + b'{"name": "'
        + b"x" * 200_000
        + b'", "value": 1}\n'
    )
    assert len(job_metrics(platform, ann, job.id)) == 500
