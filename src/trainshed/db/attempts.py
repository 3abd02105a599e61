"""Attempts of jobs in the database: each start of a job, where it ran and how it ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Connection, and_, bindparam, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from trainshed.db import tables
from trainshed.db.engine import is_duplicate
from trainshed.db.row import from_row, to_values
from trainshed.model.errors import Conflict

__all__ = [
    "AttemptRow",
    "attempt_of",
    "attempts_of",
    "change_attempt",
    "current_attempts",
    "insert_attempt",
    "latest_attempts",
    "undiscarded_attempts",
]

# Built once: building a statement takes longer than to run it.
_CURRENT = (
    select(tables.attempts)
    .join(
        tables.jobs,
        and_(
            tables.jobs.c.id == tables.attempts.c.job_id, tables.jobs.c.attempt == tables.attempts.c.attempt
        ),
    )
    .where(text(f"NOT (jobs.{tables.ENDED_PHASES_SQL})"))
)

_LATEST = _CURRENT.where(tables.attempts.c.job_id.in_(bindparam("wanted_ids", expanding=True)))
# SQLite takes 32,766 values in a statement.
_AT_ONCE = 500

_IS_WANTED = and_(
    tables.attempts.c.job_id == bindparam("wanted"), tables.attempts.c.attempt == bindparam("number")
)
_ONE = select(tables.attempts).where(_IS_WANTED)
_CHANGE = update(tables.attempts).where(_IS_WANTED)
_INSERT = insert(tables.attempts)


@dataclass(frozen=True)
class AttemptRow:
    """One start of a job."""

    job_id: str
    attempt: int
    engine: str
    placements: list[dict[str, Any]]
    state: Literal["submitting", "running", "ended"]
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    ending: dict[str, Any] | None = None
    # The last report of each node's runner.
    reports: list[dict[str, Any]] = field(default_factory=list)
    # Whether the machines have been cleared of what the attempt left there.
    discarded: bool = False


def insert_attempt(connection: Connection, row: AttemptRow) -> None:
    """Store a new attempt; the same number a second time is refused."""
    try:
        connection.execute(_INSERT, to_values(row))
    except IntegrityError as fault:
        if not is_duplicate(fault):
            raise
        raise Conflict(f"Attempt {row.attempt} of job {row.job_id} exists already.") from None


def change_attempt(connection: Connection, row: AttemptRow, **changes: Any) -> AttemptRow:
    """The attempt with the changes made."""
    connection.execute(_CHANGE, {**changes, "wanted": row.job_id, "number": row.attempt})
    return dataclasses.replace(row, **changes)


def attempt_of(connection: Connection, job_id: str, attempt: int) -> AttemptRow | None:
    """One attempt of a job."""
    row = connection.execute(_ONE, {"wanted": job_id, "number": attempt}).first()
    return None if row is None else from_row(AttemptRow, row)


def attempts_of(connection: Connection, job_id: str) -> list[AttemptRow]:
    """All attempts of a job, the first one first."""
    attempts = tables.attempts
    query = select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.attempt)
    return [from_row(AttemptRow, row) for row in connection.execute(query)]


def current_attempts(connection: Connection) -> dict[str, AttemptRow]:
    """The latest attempt of every job that has not ended, by the job's id."""
    return {row.job_id: from_row(AttemptRow, row) for row in connection.execute(_CURRENT)}


def latest_attempts(connection: Connection, job_ids: Sequence[str]) -> dict[str, AttemptRow]:
    """The latest attempt of each of these jobs that has one and has not ended, by the job's id."""
    found: dict[str, AttemptRow] = {}
    for start in range(0, len(job_ids), _AT_ONCE):
        wanted = {"wanted_ids": list(job_ids[start : start + _AT_ONCE])}
        found |= {row.job_id: from_row(AttemptRow, row) for row in connection.execute(_LATEST, wanted)}
    return found


def undiscarded_attempts(connection: Connection, ended_before: float, limit: int) -> list[AttemptRow]:
    """Attempts that ended before a moment and whose working folders still exist, oldest first."""
    attempts = tables.attempts
    query = (
        select(attempts)
        .where(
            attempts.c.discarded.is_(False), attempts.c.state == "ended", attempts.c.ended_at < ended_before
        )
        .order_by(attempts.c.ended_at)
        .limit(limit)
    )
    return [from_row(AttemptRow, row) for row in connection.execute(query)]
