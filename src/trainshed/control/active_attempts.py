"""The latest attempts of active jobs, as the loop sees them at every pass: those that only wait are not read again."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from trainshed.db.attempts import AttemptRow, latest_attempts
from trainshed.db.jobs import JobRow
from trainshed.model.phase import Phase

__all__ = ["ActiveAttempts"]


class ActiveAttempts:
    """A copy of the attempts of jobs that wait in an engine's queue, each good for as long as its job's row is the same.

    Whatever moves a waiting attempt on changes its job in the same transaction. (Where its nodes are is written beside
    that, by whoever they check in with; the loop does not need it.) Attempts of running jobs are read every time.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[JobRow, AttemptRow]] = {}

    def load(self, connection: Connection, jobs: Sequence[JobRow]) -> dict[str, AttemptRow]:
        """The latest attempt of every job that has one, by the job's id."""
        found: dict[str, AttemptRow] = {}
        wanted: list[str] = []
        for job in jobs:
            row, attempt = self._known.get(job.id, (None, None))
            if row is job and attempt is not None:
                found[job.id] = attempt
            elif job.attempt:
                wanted.append(job.id)
        read = latest_attempts(connection, wanted)
        found |= read
        waiting = {job.id: job for job in jobs if job.phase is Phase.PENDING}
        self._known = {
            job_id: (waiting[job_id], attempt) for job_id, attempt in found.items() if job_id in waiting
        }
        return found
