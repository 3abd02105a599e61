"""What is remembered of active jobs never differs from what the database holds."""

from __future__ import annotations

from typing import Any

from trainshed.control.active_jobs import ActiveJobs
from trainshed.db.engine import begin, read
from trainshed.db.jobs import active_jobs, change_job, job_by_id
from trainshed.model.phase import Phase


def test_what_is_remembered_is_what_the_database_holds(make_station: Any) -> None:
    station = make_station()
    active = ActiveJobs()

    def check() -> list[str]:
        with read(station.platform.engine) as connection:
            found = active.load(connection)
            assert found == active_jobs(connection)
        return [row.id for row in found]

    def change(job_id: str, **changes: Any) -> None:
        with begin(station.platform.engine) as connection:
            row = job_by_id(connection, job_id)
            assert row is not None and change_job(connection, row, **changes) is not None

    assert check() == []
    first, second, urgent = station.submit(""), station.submit(""), station.submit("", priority=5)
    assert check() == [urgent, first, second] == check()
    change(first, phase=Phase.PENDING, detail="queued", wait={"reason": "x"})
    change(second, stop_requested=True)
    assert check() == [urgent, first, second]
    change(urgent, phase=Phase.FAILED)
    assert check() == [first, second]
    # A second one on the same database starts with nothing.
    with read(station.platform.engine) as connection:
        assert [row.id for row in ActiveJobs().load(connection)] == [first, second]
