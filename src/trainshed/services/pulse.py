"""The pulse of jobs: the little that changes when anything about a job changes, for many jobs in one query."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from trainshed.db import tables
from trainshed.db.engine import read
from trainshed.model.phase import Phase

if TYPE_CHECKING:
    from trainshed.services.platform import Platform

__all__ = ["Pulse", "read_pulses"]

# SQLite takes 32,766 values in a statement, PostgreSQL 65,535.
_BATCH = 1000


@dataclass(frozen=True)
class Pulse:
    """Two equal pulses of a job mean that its row did not change between them."""

    version: int
    phase: Phase
    detail: str
    attempt: int
    deleted: bool


def read_pulses(platform: Platform, job_ids: Collection[str]) -> dict[str, Pulse]:
    """The pulses of the given jobs. For callers that have asked for permission already."""
    jobs = tables.jobs
    wanted = sorted(job_ids)
    pulses: dict[str, Pulse] = {}
    with read(platform.engine) as connection:
        for start in range(0, len(wanted), _BATCH):
            query = select(
                jobs.c.id, jobs.c.version, jobs.c.phase, jobs.c.detail, jobs.c.attempt, jobs.c.deleted_at
            ).where(jobs.c.id.in_(wanted[start : start + _BATCH]))
            for row in connection.execute(query):
                pulses[row.id] = Pulse(
                    row.version, Phase(row.phase), row.detail, row.attempt, row.deleted_at is not None
                )
    return pulses
