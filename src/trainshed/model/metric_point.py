"""A value of a metric, and how it stands in JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["MetricPoint", "is_number", "read_metric_record", "read_step", "value_from_json", "value_to_json"]

_LARGEST_STEP = 1 << 53


@dataclass(frozen=True)
class MetricPoint:
    """One value of a metric. `step` counts from the start of training where the lines allow it;
    `epoch` counts from 1. `value` may be NaN or infinite: a diverged loss is news, not an error."""

    name: str
    value: float
    step: int | None = None
    epoch: float | None = None


def value_to_json(value: float) -> float | str:
    """A value as JSON can hold it: not-a-number and the infinities become "nan", "inf", "-inf"."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def value_from_json(value: float | str) -> float:
    """What `value_to_json` was given."""
    return float(value)


def read_metric_record(record: Any) -> MetricPoint | None:
    """A point that a program wrote itself, as `{"name": …, "value": …, "step": …, "epoch": …}`."""
    if not isinstance(record, dict) or not isinstance(record.get("name"), str):
        return None
    name, value = record["name"].strip()[:128], record.get("value")
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        return None
    if not name or not name.isprintable() or (not isinstance(value, str) and not is_number(value)):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
        epoch = float(record["epoch"]) if is_number(record.get("epoch")) else None
    except OverflowError:
        return None
    if epoch is not None and not math.isfinite(epoch):
        epoch = None
    return MetricPoint(name, number, read_step(record.get("step")), epoch)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number (true and false are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_step(value: Any) -> int | None:
    """A step as a whole number, or nothing when it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and 0 <= number < _LARGEST_STEP else None
