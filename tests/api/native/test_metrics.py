from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from trainshed.client import Client
from trainshed.client.metrics import log_metric
from trainshed.model.errors import Conflict, InvalidInput, NotAllowed
from trainshed.services.job_credentials import create_job_credentials


def test_points_of_a_job(
    client: Client, submit: Callable[..., str], api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit()
    folder = api.begin_attempt(job_id)
    monkeypatch.setenv("TRAINSHED_METRICS_FILE", str(folder.metrics))
    assert log_metric("loss", 0.5, step=1)
    assert log_metric("loss", float("nan"), step=2, epoch=1)
    job = api.client(create_job_credentials(api.platform, job_id).token)
    assert (
        job.add_metrics(job_id, [{"name": "loss", "value": "inf", "step": 3}, {"name": "acc", "value": 1}])
        == 2
    )
    series = {item.name: item for item in client.metrics(job_id)}
    assert set(series) == {"loss", "acc"}
    values = [point.value for point in series["loss"].points]
    assert values[0] == 0.5
    assert math.isnan(values[1])
    assert values[2] == math.inf
    assert series["loss"].points[1].epoch == 1
    assert [item.name for item in client.metrics(job_id, ["acc"])] == ["acc"]


def test_a_job_writes_only_its_own(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id, other_id = submit(), submit()
    api.begin_attempt(job_id)
    api.begin_attempt(other_id)
    job = api.client(create_job_credentials(api.platform, job_id).token)
    with pytest.raises(NotAllowed):
        job.add_metrics(other_id, [{"name": "loss", "value": 1}])
    with pytest.raises(NotAllowed):
        job.get(other_id)


def test_points_that_cannot_be_used(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    with pytest.raises(Conflict):
        client.add_metrics(job_id, [{"name": "loss", "value": 1}])
    api.begin_attempt(job_id)
    for point in (
        {"name": "", "value": 1},
        {"name": "x", "value": "many"},
        {"name": "x"},
        {"name": "a\nb", "value": 1},
    ):
        with pytest.raises(InvalidInput) as fault:
            client.add_metrics(job_id, [{"name": "fine", "value": 1}, point])
        assert fault.value.where.startswith("points.1")
    assert client.metrics(job_id) == []


def test_system_metrics(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    folder = api.begin_attempt(job_id)
    folder.system_metrics.write_text(
        '{"time": 1.0, "cpu": 0.5, "memory_bytes": 10}\n{"time": 2.0, "cpu": 1.5}\n'
    )
    series = {item.name: [point.value for point in item.points] for item in client.system_metrics(job_id)}
    assert series["node-0/cpu"] == [0.5, 1.5]
