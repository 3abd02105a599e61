"""Metric points from a training script."""

from __future__ import annotations

import json
import os
import time

from trainshed.model.metric_point import value_to_json

__all__ = ["log_metric"]


def log_metric(name: str, value: float, step: int | None = None, epoch: float | None = None) -> bool:
    """Record a point of a metric. Returns whether it was recorded: outside a job nothing happens."""
    path = os.environ.get("TRAINSHED_METRICS_FILE")
    if not path:
        return False
    point: dict[str, object] = {
        "time": time.time(),
        "rank": _rank(),
        "name": str(name),
        "value": value_to_json(float(value)),
    }
    if step is not None:
        point["step"] = int(step)
    if epoch is not None:
        point["epoch"] = epoch
    line = (json.dumps(point, ensure_ascii=False) + "\n").encode()
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644
        )
    except OSError:
        # A full disk or a closed folder must not end the training for the sake of a number.
        return False
    try:
        # One write with O_APPEND: the lines of several processes never mix.
        return os.write(descriptor, line) == len(line)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _rank() -> int:
    try:
        return int(os.environ.get("RANK", "0"))
    except ValueError:
        return 0
