"""A job and one of its attempts, as a caller names them."""

from __future__ import annotations

from trainshed.db.attempts import AttemptRow, attempt_of
from trainshed.db.engine import read
from trainshed.db.jobs import JobRow, find_job
from trainshed.model.errors import NotFound
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform

__all__ = ["find_attempt"]


def find_attempt(
    platform: Platform, caller: Caller, ref: str, attempt: int | None
) -> tuple[JobRow, AttemptRow | None]:
    """The job and that attempt, or its last one; None if it has not been started yet."""
    require(caller, "job.read")
    with read(platform.engine) as connection:
        job = find_job(connection, caller.workspace_id, ref)
        require(caller, "job.read", job)
        number = job.attempt if attempt is None else attempt
        row = attempt_of(connection, job.id, number) if 0 < number < 1 << 31 else None
    if row is None and attempt is not None:
        raise NotFound(
            f"'{job.name}' has no attempt {attempt}.",
            hint=f"It was started {job.attempt} times." if job.attempt else "It has not started yet.",
            code="unknown_attempt",
            where="attempt",
        )
    return job, row
