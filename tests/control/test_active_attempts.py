"""What is remembered of attempts never differs from what the database holds, in all that the loop asks of it."""

from __future__ import annotations

from typing import Any

from trainshed.control.active_attempts import ActiveAttempts
from trainshed.control.active_jobs import ActiveJobs
from trainshed.db.attempts import AttemptRow, change_attempt, current_attempts, insert_attempt
from trainshed.db.engine import begin, read
from trainshed.db.jobs import change_job, job_by_id
from trainshed.model.phase import Phase


def test_what_is_remembered_is_what_the_database_holds(make_station: Any) -> None:
    station = make_station()
    jobs, attempts = ActiveJobs(), ActiveAttempts()

    def check() -> dict[str, AttemptRow]:
        with read(station.platform.engine) as connection:
            found = attempts.load(connection, jobs.load(connection))
            assert found == current_attempts(connection)
        return found

    def change(job_id: str, attempt: dict[str, Any] | None = None, **changes: Any) -> None:
        with begin(station.platform.engine) as connection:
            row = job_by_id(connection, job_id)
            assert row is not None
            if changes:
                assert change_job(connection, row, **changes) is not None
            if attempt is not None:
                change_attempt(connection, check()[job_id], **attempt)

    def start(job_id: str, number: int) -> None:
        with begin(station.platform.engine) as connection:
            insert_attempt(connection, AttemptRow(job_id, number, "slurm", [], "submitting", 1.0))
        change(job_id, attempt=None, **{"phase": Phase.PENDING} if number == 1 else {})
        with begin(station.platform.engine) as connection:
            row = job_by_id(connection, job_id)
            assert row is not None and change_job(connection, row, attempt=number) is not None

    assert check() == {}
    first, second = station.submit(""), station.submit("")
    assert check() == {}
    start(first, 1)
    start(second, 1)
    assert set(check()) == {first, second} == set(check())
    change(first, {"state": "running", "started_at": 2.0}, phase=Phase.RUNNING)
    assert check()[first].state == "running"
    # Of one that runs, reports come without a change of the job.
    change(first, {"reports": [{"stage": "training"}]})
    assert check()[first].reports == [{"stage": "training"}]
    change(first, {"state": "ended"}, phase=Phase.PENDING)
    assert check()[first].state == "ended"
    start(first, 2)
    assert check()[first].attempt == 2
    change(second, {"state": "ended"}, phase=Phase.TERMINATED)
    assert set(check()) == {first}
