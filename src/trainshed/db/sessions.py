"""Console sessions and one-time login links in the database: only their hashes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from trainshed.db import tables
from trainshed.db.row import from_row, to_values

__all__ = [
    "LoginLinkRow",
    "SessionRow",
    "change_session_workspace",
    "delete_session",
    "delete_sessions_of_user",
    "forget_expired",
    "insert_login_link",
    "insert_session",
    "session_by_hash",
    "use_login_link",
]


@dataclass(frozen=True)
class SessionRow:
    """A browser that is signed in."""

    hash: str
    user_id: str
    workspace_id: str
    csrf: str
    created_at: float
    expires_at: float


@dataclass(frozen=True)
class LoginLinkRow:
    """A link that signs a user in once."""

    hash: str
    user_id: str
    created_at: float
    expires_at: float
    used_at: float | None = None


def insert_session(connection: Connection, row: SessionRow) -> None:
    """Store a new session."""
    connection.execute(insert(tables.sessions).values(**to_values(row)))


def session_by_hash(connection: Connection, digest: str) -> SessionRow | None:
    """The session with that hash."""
    row = connection.execute(select(tables.sessions).where(tables.sessions.c.hash == digest)).first()
    return None if row is None else from_row(SessionRow, row)


def change_session_workspace(connection: Connection, digest: str, workspace_id: str) -> None:
    """Let a session act in another workspace."""
    sessions = tables.sessions
    connection.execute(update(sessions).where(sessions.c.hash == digest).values(workspace_id=workspace_id))


def delete_session(connection: Connection, digest: str) -> bool:
    """End a session; False when there was none."""
    return connection.execute(delete(tables.sessions).where(tables.sessions.c.hash == digest)).rowcount > 0


def delete_sessions_of_user(connection: Connection, user_id: str) -> None:
    """End all sessions of a user and void their login links."""
    connection.execute(delete(tables.sessions).where(tables.sessions.c.user_id == user_id))
    connection.execute(delete(tables.login_links).where(tables.login_links.c.user_id == user_id))


def insert_login_link(connection: Connection, row: LoginLinkRow) -> None:
    """Store a new login link."""
    connection.execute(insert(tables.login_links).values(**to_values(row)))


def use_login_link(connection: Connection, digest: str, now: float) -> LoginLinkRow | None:
    """The link, marked as used; None when it is unknown, used or expired. Of two callers one gets it."""
    links = tables.login_links
    done = connection.execute(
        update(links)
        .where(links.c.hash == digest, links.c.used_at.is_(None), links.c.expires_at > now)
        .values(used_at=now)
    )
    if done.rowcount != 1:
        return None
    row = connection.execute(select(links).where(links.c.hash == digest)).one()
    return from_row(LoginLinkRow, row)


def forget_expired(connection: Connection, now: float) -> None:
    """Remove sessions and links whose time has passed."""
    connection.execute(delete(tables.sessions).where(tables.sessions.c.expires_at <= now))
    connection.execute(delete(tables.login_links).where(tables.login_links.c.expires_at <= now))
