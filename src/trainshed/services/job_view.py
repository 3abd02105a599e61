"""A job as callers see it, with nothing secret in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from trainshed.db import users as db_users
from trainshed.db.attempts import AttemptRow
from trainshed.db.jobs import JobRow
from trainshed.services.job_credentials import masked_values
from trainshed.services.platform import Platform

__all__ = ["AttemptView", "EventView", "JobView", "TextMask", "view_attempt", "view_job"]

# Shorter values would blank out ordinary words.
_SHORTEST = 6


@dataclass(frozen=True)
class JobView:
    """A job, as it is at one moment."""

    id: str
    name: str
    phase: str
    detail: str
    owner: str
    workspace_id: str
    spec: dict[str, Any]
    flavor: str
    nodes: int
    priority: int
    preemptible: bool
    restarts: int
    created_at: float
    queued_at: float | None
    started_at: float | None
    ended_at: float | None
    attempt: int
    # What was resolved at submit, so that the job can be repeated exactly; None until then.
    environment: dict[str, Any] | None
    stop_requested: bool
    stop_reason: str
    ending: dict[str, Any] | None
    wait: dict[str, Any] | None
    rehearsal: bool
    version: int


@dataclass(frozen=True)
class EventView:
    """One event of a job's story."""

    id: int
    time: float
    level: str
    source: str
    message: str


@dataclass(frozen=True)
class AttemptView:
    """One start of a job."""

    attempt: int
    state: str
    engine: str
    created_at: float
    started_at: float | None
    ended_at: float | None
    placements: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    ending: dict[str, Any] | None = None


class TextMask:
    """Overwrites a job's secrets wherever they stand in text or in JSON data."""

    def __init__(self, platform: Platform, job_id: str) -> None:
        values = {value for value in masked_values(platform, job_id) if len(value) >= _SHORTEST}
        self._values = sorted(values, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without the secrets."""
        for value in self._values:
            text = text.replace(value, "****")
        return text

    def data(self, value: Any) -> Any:
        """The data without the secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value


def view_job(
    platform: Platform,
    connection: Connection,
    row: JobRow,
    wait: dict[str, Any] | None = None,
    owners: dict[str, str] | None = None,
) -> JobView:
    """A job as its workspace sees it. `owners` are names of users that are known already; new ones are added."""
    owners = {} if owners is None else owners
    if row.owner_id not in owners:
        owner = db_users.user_by_id(connection, row.owner_id)
        owners[row.owner_id] = owner.name if owner else ""
    # An ending quotes the job's log, and the log may have quoted a secret.
    ending = row.ending
    if ending is not None and any(ending.get(name) for name in ("message", "hint", "line")):
        ending = TextMask(platform, row.id).data(ending)
    return JobView(
        id=row.id,
        name=row.name,
        phase=row.phase.value,
        detail=row.detail,
        owner=owners[row.owner_id],
        workspace_id=row.workspace_id,
        spec=row.spec,
        flavor=row.flavor,
        nodes=row.nodes,
        priority=row.priority,
        preemptible=row.preemptible,
        restarts=row.restarts,
        created_at=row.created_at,
        queued_at=row.queued_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        attempt=row.attempt,
        environment=row.environment,
        stop_requested=row.stop_requested,
        stop_reason=row.stop_reason,
        ending=ending,
        wait=wait,
        rehearsal=row.rehearsal,
        version=row.version,
    )


def view_attempt(mask: TextMask, row: AttemptRow) -> AttemptView:
    """An attempt as the job's workspace sees it."""
    return AttemptView(
        attempt=row.attempt,
        state=row.state,
        engine=row.engine,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        placements=row.placements,
        reports=mask.data(row.reports),
        ending=mask.data(row.ending),
    )
