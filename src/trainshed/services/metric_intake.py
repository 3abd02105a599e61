"""Metric points that arrive over the API, from a job that holds its own token."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any

from trainshed.db.engine import read
from trainshed.db.jobs import find_job
from trainshed.model.errors import Conflict, InvalidInput, Unavailable
from trainshed.model.metric_point import read_metric_record, value_to_json
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform

__all__ = ["MOST_POINTS", "add_points"]

MOST_POINTS = 1000


def add_points(platform: Platform, caller: Caller, ref: str, points: Sequence[dict[str, Any]]) -> int:
    """Record metric points of a running job; returns how many. One that is no point refuses all of them."""
    require(caller, "metrics.write")
    with read(platform.engine) as connection:
        job = find_job(connection, caller.workspace_id, ref or caller.job_id)
    require(caller, "metrics.write", job)
    if not job.attempt or not job.phase.holds_devices:
        raise Conflict(
            f"'{job.name}' is {job.phase}: only a running job has metrics to report.", code="job_not_running"
        )
    now = platform.clock()
    lines = b"".join(_line(index, point, now) for index, point in enumerate(points))
    _append(platform.home.run_folder(job.id, job.attempt, 0).metrics, lines)
    return len(points)


def _line(index: int, record: dict[str, Any], now: float) -> bytes:
    point = read_metric_record(record)
    if point is None:
        raise InvalidInput(
            "A point has a name of 1 to 128 printable characters and a value that is a number.",
            hint='Write {"name": "loss", "value": 0.3, "step": 12}.',
            where=f"points.{index}",
        )
    time, rank = record.get("time"), record.get("rank")
    line: dict[str, Any] = {
        "time": float(time) if isinstance(time, int | float) and math.isfinite(time) else now,
        "rank": rank if isinstance(rank, int) and rank >= 0 else 0,
        "name": point.name,
        "value": value_to_json(point.value),
    }
    if point.step is not None:
        line["step"] = point.step
    if point.epoch is not None:
        line["epoch"] = point.epoch
    return (json.dumps(line) + "\n").encode()


def _append(path: os.PathLike[str], data: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        raise Unavailable(
            "The job's run folder is not on this machine.",
            hint="Use trainshed.log_metric() inside the job.",
            code="no_run_folder",
        ) from None
    try:
        # One write with O_APPEND: the runner writes into the same file, and lines must not mix.
        if os.write(descriptor, data) != len(data):
            raise Unavailable("The disk is full.", hint="Try again later.", code="disk_full")
    except OSError as fault:
        raise Unavailable(f"The points cannot be written: {fault.strerror}.", code="disk_full") from None
    finally:
        os.close(descriptor)
