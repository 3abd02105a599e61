"""The story of a job, in order."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine

from trainshed.db.engine import begin, read
from trainshed.db.events import add_event, events_of, latest_event
from trainshed.db.jobs import JobRow, insert_job


def test_events_come_in_order_and_in_pages(engine: Engine, make_job: Callable[..., JobRow]) -> None:
    job, other = make_job(), make_job()
    with begin(engine) as connection:
        insert_job(connection, job)
        insert_job(connection, other)
        for number in range(7):
            add_event(connection, job.id, 100.0 - number, "info", "test", f"event {number}")
            add_event(connection, other.id, 1.0, "info", "test", "not yours")
        add_event(connection, job.id, 1.0, "error", "test", "nul \0 " + "x" * 20000)
    with read(engine) as connection:
        page = events_of(connection, job.id, limit=5)
        assert [event.message for event in page] == [f"event {number}" for number in range(5)]
        rest = events_of(connection, job.id, after_id=page[-1].id)
        assert [event.message for event in rest[:2]] == ["event 5", "event 6"]
        assert rest[2].message.startswith("nul \ufffd x")
        assert len(rest[2].message) == 8000
        assert latest_event(connection, job.id) == rest[2]
        assert latest_event(connection, "nobody") is None
