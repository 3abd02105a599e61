"""Jobs in the database: one row each, changed only by whoever read its latest version."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, func, insert, or_, select, text, update
from sqlalchemy.exc import IntegrityError

from trainshed.db import tables
from trainshed.db.engine import is_duplicate, is_text
from trainshed.db.row import from_row, to_values
from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.model.phase import Phase, check_transition

__all__ = [
    "JobRow",
    "active_jobs",
    "active_versions",
    "change_job",
    "count_jobs",
    "deleted_jobs",
    "ended_jobs",
    "find_job",
    "forget_job",
    "insert_job",
    "job_by_id",
    "jobs_by_ids",
    "jobs_of_code",
    "list_jobs",
    "names_starting_with",
]

_ENDED = text(tables.ENDED_PHASES_SQL)
_ACTIVE = text(f"NOT ({tables.ENDED_PHASES_SQL})")
# Statements that are asked again and again are built once: building one takes longer than to run it.
_ACTIVE_JOBS = (
    select(tables.jobs)
    .where(_ACTIVE)
    .order_by(tables.jobs.c.priority.desc(), tables.jobs.c.created_at, tables.jobs.c.id)
)
_ACTIVE_VERSIONS = select(tables.jobs.c.id, tables.jobs.c.version).where(_ACTIVE)
_BY_ID = select(tables.jobs).where(tables.jobs.c.id == bindparam("wanted"))
_BY_IDS = select(tables.jobs).where(tables.jobs.c.id.in_(bindparam("wanted_ids", expanding=True)))
_MINE = select(tables.jobs).where(
    tables.jobs.c.workspace_id == bindparam("workspace"), tables.jobs.c.deleted_at.is_(None)
)
_MINE_BY_ID = _MINE.where(tables.jobs.c.id == bindparam("wanted"))
_MINE_BY_NAME = _MINE.where(tables.jobs.c.name == bindparam("wanted"))
_INSERT = insert(tables.jobs)
_CHANGE = update(tables.jobs).where(
    tables.jobs.c.id == bindparam("wanted"), tables.jobs.c.version == bindparam("known_version")
)
# Among so many a name that was misspelled is looked for.
_RECENT = 200
_SHORTEST_PREFIX = 4
# SQLite takes 32,766 values in a statement.
_AT_ONCE = 500


@dataclass(frozen=True)
class JobRow:
    """A job as the database holds it. `spec` is public: its secrets are masked."""

    id: str
    workspace_id: str
    name: str
    owner_id: str
    phase: Phase
    spec: dict[str, Any]
    flavor: str
    nodes: int
    created_at: float
    detail: str = ""
    priority: int = 0
    preemptible: bool = False
    restarts: int = 0
    queued_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    # The number of the latest attempt; 0 before the first.
    attempt: int = 0
    # Attempts that do not count as restarts: those that died before the first process, and preemptions of jobs that
    # may be preempted.
    starts_without_launch: int = 0
    version: int = 1
    environment: dict[str, Any] | None = None
    code_bucket: str = ""
    code_prefix: str = ""
    stop_requested: bool = False
    stop_reason: str = ""
    ending: dict[str, Any] | None = field(default=None)
    wait: dict[str, Any] | None = field(default=None)
    rehearsal: bool = False
    deleted_at: float | None = None


def insert_job(connection: Connection, row: JobRow) -> None:
    """Store a new job; a name that another job of the workspace has is refused."""
    try:
        connection.execute(_INSERT, to_values(row))
    except IntegrityError as fault:
        if not is_duplicate(fault):
            raise
        raise Conflict(
            f"There is already a job named '{row.name}'.",
            hint="Choose another name, leave the name out, or delete the other job first.",
            code="name_taken",
            where="name",
        ) from None


def job_by_id(connection: Connection, job_id: str) -> JobRow | None:
    """The job of that id, deleted or not, whatever its workspace."""
    if not is_text(job_id):
        return None
    return _one(connection, _BY_ID, wanted=job_id)


def find_job(connection: Connection, workspace_id: str, ref: str) -> JobRow:
    """The job of a workspace that a name, an id or the unique beginning of an id means."""
    usable = is_text(ref) and len(ref) <= 64
    found = None
    if usable:
        asked = {"workspace": workspace_id, "wanted": ref}
        found = _one(connection, _MINE_BY_ID, **asked) or _one(connection, _MINE_BY_NAME, **asked)
    if found is not None:
        return found
    if usable and len(ref) >= _SHORTEST_PREFIX:
        query = _MINE.where(func.substr(tables.jobs.c.id, 1, len(ref)) == ref).limit(2)
        rows = connection.execute(query, {"workspace": workspace_id}).all()
        if len(rows) == 1:
            return _job(rows[0])
        if rows:
            raise InvalidInput(
                f"Several jobs have an id that begins with '{ref}'.", hint="Give more of it.", where="job"
            )
    hint = "`trainshed jobs` lists them."
    if usable and (near := _nearest_name(connection, workspace_id, ref)):
        hint = f"Did you mean '{near}'? {hint}"
    raise NotFound(f"There is no job '{ref[:80]}'.", hint=hint, code="unknown_job", where="job")


def _nearest_name(connection: Connection, workspace_id: str, word: str) -> str:
    """The name of a recent job of the workspace that somebody may have meant, or nothing."""
    import difflib

    jobs = tables.jobs
    query = select(jobs.c.name).where(jobs.c.workspace_id == workspace_id, jobs.c.deleted_at.is_(None))
    names = connection.execute(query.order_by(jobs.c.created_at.desc()).limit(_RECENT)).scalars().all()
    return next(iter(difflib.get_close_matches(word, names, n=1, cutoff=0.75)), "")


def list_jobs(
    connection: Connection,
    workspace_id: str,
    phase: Phase | None = None,
    limit: int = 50,
    before: str | None = None,
) -> list[JobRow]:
    """The workspace's jobs, newest first; `before` is the id of the last job of the page before."""
    jobs = tables.jobs
    query = select(jobs).where(jobs.c.workspace_id == workspace_id, jobs.c.deleted_at.is_(None))
    if phase is not None:
        query = query.where(jobs.c.phase == phase.value)
    if before:
        last = job_by_id(connection, before)
        if last is None or last.workspace_id != workspace_id:
            raise NotFound("The page to continue after does not exist.", where="before")
        query = query.where(
            or_(
                jobs.c.created_at < last.created_at,
                and_(jobs.c.created_at == last.created_at, jobs.c.id < last.id),
            )
        )
    return _many(connection, query.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit))


def active_jobs(connection: Connection) -> list[JobRow]:
    """All jobs that have not ended, in the order of the queue: priority, then age."""
    return _many(connection, _ACTIVE_JOBS)


def active_versions(connection: Connection) -> dict[str, int]:
    """The versions of all jobs that have not ended: a job whose version is the same has not changed."""
    return {row.id: row.version for row in connection.execute(_ACTIVE_VERSIONS)}


def jobs_by_ids(connection: Connection, job_ids: Sequence[str]) -> list[JobRow]:
    """The jobs of these ids that there are, in any order."""
    found: list[JobRow] = []
    for start in range(0, len(job_ids), _AT_ONCE):
        rows = connection.execute(_BY_IDS, {"wanted_ids": list(job_ids[start : start + _AT_ONCE])})
        found += [_job(row) for row in rows]
    return found


def ended_jobs(connection: Connection, ended_before: float, limit: int) -> list[JobRow]:
    """Jobs that ended before a moment and were not deleted, oldest first."""
    jobs = tables.jobs
    query = select(jobs).where(_ENDED, jobs.c.ended_at < ended_before, jobs.c.deleted_at.is_(None))
    return _many(connection, query.order_by(jobs.c.ended_at).limit(limit))


def jobs_of_code(connection: Connection, code_prefix: str) -> int:
    """How many jobs that were not deleted refer to a code snapshot."""
    jobs = tables.jobs
    query = select(func.count()).where(jobs.c.code_prefix == code_prefix, jobs.c.deleted_at.is_(None))
    return connection.execute(query).scalar_one()


def count_jobs(connection: Connection) -> dict[Phase, int]:
    """How many jobs there are in each phase, over all workspaces."""
    jobs = tables.jobs
    query = select(jobs.c.phase, func.count()).where(jobs.c.deleted_at.is_(None)).group_by(jobs.c.phase)
    return {Phase(phase): count for phase, count in connection.execute(query)}


def names_starting_with(connection: Connection, workspace_id: str, prefix: str) -> set[str]:
    """Names of a workspace's jobs that begin with the prefix."""
    jobs = tables.jobs
    query = select(jobs.c.name).where(
        jobs.c.workspace_id == workspace_id,
        jobs.c.deleted_at.is_(None),
        func.substr(jobs.c.name, 1, len(prefix)) == prefix,
    )
    return set(connection.execute(query).scalars())


def deleted_jobs(connection: Connection, limit: int) -> list[JobRow]:
    """Jobs that were deleted and whose data has not been removed yet."""
    jobs = tables.jobs
    return _many(connection, select(jobs).where(jobs.c.deleted_at.is_not(None)).limit(limit))


def forget_job(connection: Connection, job_id: str) -> None:
    """Remove a deleted job's row with all that hangs on it: attempts, events, secrets, credentials."""
    jobs = tables.jobs
    connection.execute(delete(jobs).where(jobs.c.id == job_id, jobs.c.deleted_at.is_not(None)))


def change_job(connection: Connection, row: JobRow, **changes: Any) -> JobRow | None:
    """The job with the changes made, or None when the row was changed by another since it was read."""
    then = changes.get("phase", row.phase)
    if then != row.phase:
        check_transition(row.phase, then)
    changed = dataclasses.replace(row, version=row.version + 1, **changes)
    guard = {"wanted": row.id, "known_version": row.version}
    done = connection.execute(_CHANGE, {**changes, "version": changed.version, **guard})
    return changed if done.rowcount == 1 else None


def _one(connection: Connection, query: Select[Any], **asked: str) -> JobRow | None:
    row = connection.execute(query, asked).first()
    return None if row is None else _job(row)


def _many(connection: Connection, query: Select[Any]) -> list[JobRow]:
    return [_job(row) for row in connection.execute(query)]


def _job(row: Any) -> JobRow:
    return from_row(JobRow, row, phase=Phase(row.phase))
