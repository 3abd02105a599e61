"""The pulse of jobs: the little that changes when anything about a job changes, for many jobs in one query."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from trainshed.db import tables
from trainshed.db.engine import read
from trainshed.model.phase import Phase
from trainshed.store.embedded.commit_watch import CommitWatch

if TYPE_CHECKING:
    from trainshed.services.platform import Platform

__all__ = ["Pulse", "PulseReader", "read_pulses"]

# SQLite takes 32,766 values in a statement, PostgreSQL 65,535.
_BATCH = 1000
# Built once: building a statement takes longer than to run it.
_PULSES = select(
    tables.jobs.c.id,
    tables.jobs.c.version,
    tables.jobs.c.phase,
    tables.jobs.c.detail,
    tables.jobs.c.attempt,
    tables.jobs.c.deleted_at,
).where(tables.jobs.c.id.in_(bindparam("wanted_ids", expanding=True)))


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
    wanted = sorted(job_ids)
    pulses: dict[str, Pulse] = {}
    with read(platform.engine) as connection:
        for start in range(0, len(wanted), _BATCH):
            for row in connection.execute(_PULSES, {"wanted_ids": wanted[start : start + _BATCH]}):
                pulses[row.id] = Pulse(
                    row.version, Phase(row.phase), row.detail, row.attempt, row.deleted_at is not None
                )
    return pulses


class PulseReader:
    """Reads pulses again and again, and the database only when somebody has committed something since."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._watch: CommitWatch | None = None
        self._state: bytes | None = None
        self._known: dict[str, Pulse] = {}
        self._asked: frozenset[str] = frozenset()

    def is_current(self, job_ids: Collection[str]) -> bool:
        """Whether what was read last is still so for these jobs; it takes no statement and no system call."""
        return self._state is not None and self._asked.issuperset(job_ids) and self._look() == self._state

    def read(self, job_ids: Collection[str]) -> dict[str, Pulse]:
        """The pulses of the given jobs. For callers that have asked for permission already."""
        if not self.is_current(job_ids):
            # Looked at before: what is committed while the rows are read is read again.
            state = self._look()
            self._known = read_pulses(self._platform, job_ids)
            self._asked, self._state = frozenset(job_ids), state
        return self._known

    def _look(self) -> bytes | None:
        if self._watch is None:
            url = self._platform.engine.url
            if url.get_backend_name() != "sqlite" or not url.database:
                return None
            try:
                self._watch = CommitWatch(url.database)
            except sqlite3.Error:
                return None
        return self._watch.state()
