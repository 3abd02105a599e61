"""The jobs that have not ended, as the loop sees them at every pass: only what has changed is read again."""

from __future__ import annotations

from sqlalchemy import Connection

from trainshed.db.jobs import JobRow, active_versions, jobs_by_ids

__all__ = ["ActiveJobs"]


class ActiveJobs:
    """A copy of the active jobs' rows, each good for as long as its version in the database is the same.

    Several threads may ask: each compares what is remembered with what the database says to it.
    """

    def __init__(self) -> None:
        self._known: dict[str, JobRow] = {}

    def load(self, connection: Connection) -> list[JobRow]:
        """All jobs that have not ended, in the order of the queue: priority, then age."""
        versions = active_versions(connection)
        known = {
            job_id: row
            for job_id, row in self._known.items()
            if versions.get(job_id) == row.version and not row.phase.is_terminal
        }
        changed = [job_id for job_id in versions if job_id not in known]
        known |= {row.id: row for row in jobs_by_ids(connection, changed) if not row.phase.is_terminal}
        self._known = known
        return sorted(known.values(), key=lambda row: (-row.priority, row.created_at, row.id))
