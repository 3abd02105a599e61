"""Attempts in the database."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from trainshed.db.attempts import (
    AttemptRow,
    attempt_of,
    attempts_of,
    change_attempt,
    current_attempts,
    insert_attempt,
    undiscarded_attempts,
)
from trainshed.db.engine import begin, read
from trainshed.db.jobs import JobRow, insert_job
from trainshed.model.errors import Conflict
from trainshed.model.phase import Phase


def test_attempts_are_stored_changed_and_counted_once(
    engine: Engine, make_job: Callable[..., JobRow]
) -> None:
    job = make_job()
    first = AttemptRow(job.id, 1, "local", [{"node": "n", "devices": [0, 1]}], "submitting", 5.0)
    with begin(engine) as connection:
        insert_job(connection, job)
        insert_attempt(connection, first)
    with pytest.raises(Conflict), begin(engine) as connection:
        insert_attempt(connection, first)
    with begin(engine) as connection:
        changed = change_attempt(
            connection,
            first,
            state="ended",
            ended_at=9.0,
            reports=[{"pid": 3}],
            ending={"outcome": "completed"},
        )
        insert_attempt(connection, AttemptRow(job.id, 2, "local", [], "running", 6.0))
    with read(engine) as connection:
        assert attempt_of(connection, job.id, 1) == changed
        assert attempt_of(connection, job.id, 3) is None
        assert [row.attempt for row in attempts_of(connection, job.id)] == [1, 2]
        assert undiscarded_attempts(connection, 9.5, 10) == [changed]
        assert undiscarded_attempts(connection, 9.0, 10) == []
    with begin(engine) as connection:
        change_attempt(connection, changed, discarded=True)
        assert undiscarded_attempts(connection, 9.5, 10) == []


def test_current_attempts_are_the_latest_of_jobs_that_go_on(
    engine: Engine, make_job: Callable[..., JobRow]
) -> None:
    active, waiting = make_job(attempt=2, phase=Phase.RUNNING), make_job(phase=Phase.PENDING)
    ended = make_job(attempt=1, phase=Phase.COMPLETED)
    with begin(engine) as connection:
        for job in (active, waiting, ended):
            insert_job(connection, job)
        for job, number in ((active, 1), (active, 2), (ended, 1)):
            insert_attempt(connection, AttemptRow(job.id, number, "local", [], "running", 1.0))
    with read(engine) as connection:
        found = current_attempts(connection)
    assert {job_id: row.attempt for job_id, row in found.items()} == {active.id: 2}
