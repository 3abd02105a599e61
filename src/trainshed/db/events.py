"""The story of each job: what happened, when, and who says so."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, insert, select

from trainshed.db import tables
from trainshed.db.engine import clean_text
from trainshed.db.row import from_row

__all__ = ["EventRow", "add_event", "events_of", "latest_event"]

# A message is a sentence or a few; what a user's tool prints belongs into the log.
_LONGEST_MESSAGE = 8000
_INSERT = insert(tables.events)


@dataclass(frozen=True)
class EventRow:
    """One event of a job."""

    id: int
    job_id: str
    time: float
    level: str
    source: str
    message: str


def add_event(
    connection: Connection, job_id: str, time: float, level: str, source: str, message: str
) -> None:
    """Add an event to a job's story. What no database can hold (NUL) is shown as a replacement character."""
    told = clean_text(message)[:_LONGEST_MESSAGE]
    row = {"job_id": job_id, "time": time, "level": level, "source": source, "message": told}
    connection.execute(_INSERT, row)


def events_of(connection: Connection, job_id: str, limit: int = 1000, after_id: int = 0) -> list[EventRow]:
    """A job's events in order, from behind the event `after_id`."""
    events = tables.events
    query = select(events).where(events.c.job_id == job_id, events.c.id > after_id)
    return [from_row(EventRow, row) for row in connection.execute(query.order_by(events.c.id).limit(limit))]


def latest_event(connection: Connection, job_id: str) -> EventRow | None:
    """The last event of a job."""
    events = tables.events
    query = select(events).where(events.c.job_id == job_id).order_by(events.c.id.desc()).limit(1)
    row = connection.execute(query).first()
    return None if row is None else from_row(EventRow, row)
