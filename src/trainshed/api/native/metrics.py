"""Metrics of jobs: read by people, written by jobs with their own token."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import Field

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.models import Model, RequestModel
from trainshed.model.metric_point import value_to_json
from trainshed.services import metric_intake, metrics
from trainshed.services.metrics import MetricSeries

__all__ = ["router"]

router = APIRouter(tags=["metrics"])

Limit = Annotated[int, Query(ge=1, le=100_000, description="At most so many points of each metric.")]
AttemptOf = Annotated[int | None, Query(ge=1, description="Of this attempt; else of the last one.")]


class Point(Model):
    """One value of a metric."""

    time: float
    value: float | str = Field(description='A number; "nan", "inf" or "-inf" where JSON has no word for it.')
    step: int | None
    epoch: float | None
    rank: int


class Series(Model):
    """Points of one metric in order."""

    name: str
    points: list[Point]
    count: int = Field(description="Of how many points these are a selection.")


class SeriesList(Model):
    """Metrics by name."""

    metrics: list[Series]


class NewPoint(RequestModel):
    """A point to be recorded."""

    name: str = Field(min_length=1, max_length=128)
    value: float | str = Field(description='A number, "nan", "inf" or "-inf".')
    step: int | None = None
    epoch: float | None = None
    time: float | None = Field(default=None, description="Seconds since the epoch; now if left out.")
    rank: int = Field(default=0, ge=0)


class NewPoints(RequestModel):
    """Points to be recorded."""

    points: list[NewPoint] = Field(max_length=metric_intake.MOST_POINTS)


class Recorded(Model):
    """How many points were recorded."""

    recorded: int


@router.get("/jobs/{job}/metrics", summary="A job's metrics", response_model=SeriesList)
def list_metrics(
    platform: PlatformOf,
    caller: CallerOf,
    job: str,
    name: Annotated[
        list[str] | None, Query(description="Only this metric; may be given several times.")
    ] = None,
    limit: Limit = 1000,
    attempt: AttemptOf = None,
) -> JSONResponse:
    """Loss, accuracy, throughput and whatever the job reported itself."""
    return _answer(metrics.job_metrics(platform, caller, job, name, limit, attempt))


@router.post("/jobs/{job}/metrics", status_code=201, summary="Record metric points")
def add_metrics(platform: PlatformOf, caller: CallerOf, job: str, body: NewPoints) -> Recorded:
    """For a running job with its own token, or for a developer of its workspace."""
    points = [point.model_dump(exclude_none=True) for point in body.points]
    return Recorded(recorded=metric_intake.add_points(platform, caller, job, points))


@router.get("/jobs/{job}/system-metrics", summary="A job's use of its machines", response_model=SeriesList)
def list_system_metrics(
    platform: PlatformOf, caller: CallerOf, job: str, limit: Limit = 1000, attempt: AttemptOf = None
) -> JSONResponse:
    """Use of cores, memory and devices over time, per node."""
    return _answer(metrics.system_metrics(platform, caller, job, limit, attempt))


def _answer(found: list[MetricSeries]) -> JSONResponse:
    # Written by hand: there may be a hundred thousand points, and a value may be no number.
    series: list[dict[str, Any]] = [
        {
            "name": item.name,
            "count": item.count,
            "points": [
                {
                    "time": point.time,
                    "value": value_to_json(point.value),
                    "step": point.step,
                    "epoch": point.epoch,
                    "rank": point.rank,
                }
                for point in item.points
            ],
        }
        for item in found
    ]
    return JSONResponse({"metrics": series})
