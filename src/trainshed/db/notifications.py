"""Where people want to be told, and what is on its way to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, or_, select, update

from trainshed.db import tables
from trainshed.db.row import from_row, to_values

__all__ = [
    "MessageRow",
    "TargetRow",
    "claim_due",
    "delete_target",
    "forget_messages",
    "has_due",
    "insert_message",
    "insert_target",
    "last_messages",
    "settle_message",
    "target_by_id",
    "targets_for_job",
    "targets_of",
]

# Built once: building a statement takes longer than to run it.
_FOR_JOB = select(tables.notification_targets).where(
    tables.notification_targets.c.workspace_id == bindparam("workspace"),
    or_(
        tables.notification_targets.c.covers == "workspace",
        and_(
            tables.notification_targets.c.covers == "user",
            tables.notification_targets.c.user_id == bindparam("owner"),
        ),
    ),
)


@dataclass(frozen=True)
class TargetRow:
    """A place to tell: whose it is, what it covers (`user`: that user's jobs, `workspace`: all), and its sealed secret."""

    id: str
    workspace_id: str
    user_id: str
    covers: str
    kind: str
    address: str
    events: list[str]
    secret: bytes
    created_at: float


@dataclass(frozen=True)
class MessageRow:
    """One message to one place: `waiting`, `sent` or `given up`."""

    id: str
    target_id: str
    job_id: str
    event: str
    body: dict[str, Any]
    state: str
    tries: int
    error: str
    created_at: float
    next_at: float


def insert_target(connection: Connection, row: TargetRow) -> None:
    """Store a new place."""
    connection.execute(insert(tables.notification_targets).values(**to_values(row)))


def target_by_id(connection: Connection, target_id: str) -> TargetRow | None:
    """The place with that id."""
    targets = tables.notification_targets
    row = connection.execute(select(targets).where(targets.c.id == target_id)).first()
    return None if row is None else from_row(TargetRow, row)


def targets_of(connection: Connection, workspace_id: str) -> list[TargetRow]:
    """All places of a workspace, oldest first."""
    targets = tables.notification_targets
    query = (
        select(targets)
        .where(targets.c.workspace_id == workspace_id)
        .order_by(targets.c.created_at, targets.c.id)
    )
    return [from_row(TargetRow, row) for row in connection.execute(query)]


def targets_for_job(connection: Connection, workspace_id: str, owner_id: str) -> list[TargetRow]:
    """The places that are told about a job of that owner in that workspace."""
    asked = {"workspace": workspace_id, "owner": owner_id}
    return [from_row(TargetRow, row) for row in connection.execute(_FOR_JOB, asked)]


def delete_target(connection: Connection, target_id: str) -> None:
    """Remove a place, and what was on its way there."""
    connection.execute(delete(tables.notifications).where(tables.notifications.c.target_id == target_id))
    connection.execute(
        delete(tables.notification_targets).where(tables.notification_targets.c.id == target_id)
    )


def insert_message(connection: Connection, row: MessageRow) -> None:
    """Put a message on its way."""
    connection.execute(insert(tables.notifications).values(**to_values(row)))


def claim_due(connection: Connection, now: float, lease: float) -> MessageRow | None:
    """The next message that is due, kept from other senders for `lease` seconds."""
    messages = tables.notifications
    query = (
        select(messages)
        .where(messages.c.state == "waiting", messages.c.next_at <= now)
        .order_by(messages.c.next_at)
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    found = from_row(MessageRow, row)
    taken = connection.execute(
        update(messages)
        .where(messages.c.id == found.id, messages.c.state == "waiting", messages.c.next_at == found.next_at)
        .values(next_at=now + lease, tries=found.tries + 1)
    )
    return found if taken.rowcount else None


def has_due(connection: Connection, now: float) -> bool:
    """Whether a message waits for its time, and it has come."""
    messages = tables.notifications
    query = select(messages.c.id).where(messages.c.state == "waiting", messages.c.next_at <= now).limit(1)
    return connection.execute(query).first() is not None


def settle_message(connection: Connection, message_id: str, state: str, next_at: float, error: str) -> None:
    """Note how a try to deliver a message ended."""
    messages = tables.notifications
    connection.execute(
        update(messages)
        .where(messages.c.id == message_id)
        .values(state=state, next_at=next_at, error=error[:500])
    )


def last_messages(connection: Connection, target_ids: list[str]) -> dict[str, MessageRow]:
    """The latest message to each of the places, if there is one."""
    messages = tables.notifications
    newest = (
        select(messages.c.target_id, func.max(messages.c.created_at).label("at"))
        .where(messages.c.target_id.in_(target_ids))
        .group_by(messages.c.target_id)
        .subquery()
    )
    query = select(messages).join(
        newest, and_(messages.c.target_id == newest.c.target_id, messages.c.created_at == newest.c.at)
    )
    return {row.target_id: from_row(MessageRow, row) for row in connection.execute(query)}


def forget_messages(connection: Connection, before: float) -> int:
    """Remove messages that were settled before a moment; the number of them."""
    messages = tables.notifications
    done = connection.execute(
        delete(messages).where(messages.c.state != "waiting", messages.c.created_at < before)
    )
    return int(done.rowcount)
