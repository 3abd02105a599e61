"""Metrics of jobs: what they measured themselves, and how they used their machines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainshed.db.jobs import JobRow
from trainshed.model.errors import InvalidInput, NotFound
from trainshed.model.metric_point import read_metric_record
from trainshed.services.identity import Caller
from trainshed.services.job_attempt import find_attempt
from trainshed.services.job_view import TextMask
from trainshed.services.log_source import ARCHIVE_BUCKET
from trainshed.services.platform import Platform
from trainshed.services.sampling import Sampler

__all__ = ["MetricPointView", "MetricSeries", "job_metrics", "system_metrics"]

_MOST_POINTS = 100_000
_MOST_SERIES = 500
_LONGEST_LINE = 64 * 1024
# Of a longer file the newest part is read: a page must not take a minute.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class MetricPointView:
    """One value of a metric. The value may be NaN or infinite; JSON writes those as text."""

    time: float
    value: float
    step: int | None = None
    epoch: float | None = None
    rank: int = 0


@dataclass(frozen=True)
class MetricSeries:
    """Points of one metric in order: all of them, or lowest, highest and last ones of equal stretches."""

    name: str
    points: list[MetricPointView]
    # Of how many points these are a selection.
    count: int


def job_metrics(
    platform: Platform,
    caller: Caller,
    ref: str,
    names: list[str] | None = None,
    limit: int = 1000,
    attempt: int | None = None,
) -> list[MetricSeries]:
    """The metrics that the latest attempt reported, by name, at most `limit` points of each.

    Ranks of one job report the same things: of each metric the lowest rank that reported it is shown.
    """
    job, number, nodes = _load(platform, caller, ref, limit, attempt)
    wanted = None if names is None else set(names)
    found: dict[str, tuple[int, Sampler[MetricPointView]]] = {}
    for node in range(nodes):
        for record in _records(platform, job, number, node, "metrics.jsonl"):
            point = read_metric_record(record)
            if point is None or (wanted is not None and point.name not in wanted):
                continue
            rank = _whole(record.get("rank"))
            known = found.get(point.name)
            if known is None or rank < known[0]:
                if known is None and len(found) >= _MOST_SERIES:
                    continue
                known = (rank, Sampler(limit))
                found[point.name] = known
            if rank == known[0]:
                view = MetricPointView(
                    _number(record.get("time")), point.value, point.step, point.epoch, rank
                )
                known[1].add(view, point.value)
    mask = TextMask(platform, job.id)
    return [
        MetricSeries(mask.text(name), sampler.points(), sampler.count)
        for name, (_, sampler) in sorted(found.items())
    ]


def system_metrics(
    platform: Platform, caller: Caller, ref: str, limit: int = 1000, attempt: int | None = None
) -> list[MetricSeries]:
    """Use of cores, memory and devices on each node: `node-0/cpu`, `node-0/nvidia-1/utilization` …"""
    job, number, nodes = _load(platform, caller, ref, limit, attempt)
    found: dict[str, Sampler[MetricPointView]] = {}
    for node in range(nodes):
        for record in _records(platform, job, number, node, "system.jsonl"):
            time = _number(record.get("time"))
            for name, value in _flatten(record, f"node-{node}/"):
                if name not in found and len(found) >= _MOST_SERIES:
                    continue
                found.setdefault(name, Sampler(limit)).add(MetricPointView(time, value), value)
    return [MetricSeries(name, sampler.points(), sampler.count) for name, sampler in found.items()]


def _load(
    platform: Platform, caller: Caller, ref: str, limit: int, attempt: int | None
) -> tuple[JobRow, int, int]:
    if not 1 <= limit <= _MOST_POINTS:
        raise InvalidInput(f"The limit is 1 to {_MOST_POINTS}.", where="limit")
    job, row = find_attempt(platform, caller, ref, attempt)
    return job, row.attempt if row else job.attempt, len(row.placements) if row else 0


def _records(platform: Platform, job: JobRow, attempt: int, node: int, name: str) -> Iterator[dict[str, Any]]:
    with _opened(platform, job, attempt, node, name) as file:
        if file is None:
            return
        while line := file.readline(_LONGEST_LINE):
            # A line without an end is still being written, or is too long to be one of ours.
            if not line.endswith(b"\n"):
                continue
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


@contextmanager
def _opened(platform: Platform, job: JobRow, attempt: int, node: int, name: str) -> Iterator[BinaryIO | None]:
    """The file in the run folder as long as it is there, then the archived one."""
    folder = platform.home.run_folder(job.id, attempt, node)
    path: Path = folder.metrics if name == "metrics.jsonl" else folder.system_metrics
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        descriptor = -1
    if descriptor >= 0:
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if size > _MOST_BYTES:
                file.seek(size - _MOST_BYTES)
                file.readline(_LONGEST_LINE)
            yield file
        return
    key = f"{job.id}/attempt-{attempt}/node-{node}/{name}"
    try:
        size = platform.store.info(ARCHIVE_BUCKET, key).size
        start = max(0, size - _MOST_BYTES)
        with platform.store.open(ARCHIVE_BUCKET, key, start) as archived:
            if start:
                archived.readline(_LONGEST_LINE)
            yield archived
    except NotFound:
        yield None


def _flatten(record: dict[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if name == "devices" and isinstance(value, list):
            for device in value:
                if isinstance(device, dict):
                    place = f"{prefix}{device.get('kind', 'device')}-{device.get('index', 0)}/"
                    rest = {key: item for key, item in device.items() if key not in ("kind", "index")}
                    yield from _flatten(rest, place)
        elif name != "time" and isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, float(value)


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
