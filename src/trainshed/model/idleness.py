"""When a job that uses neither its devices nor the processor is told about, and when it is stopped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.model.attempt import NodeReport

__all__ = ["REPORTED_AFTER", "IdleRule", "idle_since", "rule_for"]

# So long a node does nothing before its runner says so, unless the job has a shorter `idle_after`.
REPORTED_AFTER = 60


@dataclass(frozen=True)
class IdleRule:
    """After how many idle seconds a job's owner is told, and after how many the job is stopped; 0 is never."""

    notify: int = 0
    stop: int = 0


def rule_for(spec: Mapping[str, Any], default_minutes: int = 0, limit_minutes: int = 0) -> IdleRule:
    """The job's own wish, with the administrator's default where it has none, and never beyond the limit."""
    own = int(spec.get("idle_after", 0))
    notify = own or default_minutes * 60
    stops = [own if spec.get("idle_action") == "stop" else 0, limit_minutes * 60]
    return IdleRule(notify, min((seconds for seconds in stops if seconds > 0), default=0))


def idle_since(reports: Iterable[NodeReport | None]) -> float:
    """Since when all nodes are idle; 0 while one of them works, fetches its inputs or brings something home."""
    moments = [report.idle_since if report and report.stage == "training" else 0.0 for report in reports]
    return max(moments) if moments and all(moments) else 0.0
