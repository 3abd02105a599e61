"""Workspaces and their members in the database."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from trainshed.db import tables
from trainshed.db.engine import is_duplicate, is_text
from trainshed.db.row import from_row, to_values
from trainshed.model.errors import Conflict

__all__ = [
    "MemberRow",
    "WorkspaceRow",
    "change_workspace",
    "has_active_jobs",
    "insert_workspace",
    "list_workspaces",
    "lock_workspace",
    "members_of",
    "next_number",
    "remove_member",
    "role_of",
    "roles_of_user",
    "set_member",
    "workspace_by_id",
    "workspace_by_name",
]

# Built once: building a statement takes longer than to run it.
_BY_ID = select(tables.workspaces).where(tables.workspaces.c.id == bindparam("wanted"))
_LOCK = (
    select(tables.workspaces.c.id)
    .where(tables.workspaces.c.id == bindparam("wanted"), tables.workspaces.c.deleted_at.is_(None))
    .with_for_update()
)
_ROLE = select(tables.members.c.role).where(
    tables.members.c.workspace_id == bindparam("workspace"), tables.members.c.user_id == bindparam("user")
)


@dataclass(frozen=True)
class WorkspaceRow:
    """A workspace: whose members share jobs and buckets. Its number makes its jobs' Unix user id."""

    id: str
    number: int
    name: str
    created_at: float
    deleted_at: float | None = None


@dataclass(frozen=True)
class MemberRow:
    """A user's role in a workspace."""

    workspace_id: str
    user_id: str
    role: str
    created_at: float


def next_number(connection: Connection) -> int:
    """A number that no workspace ever had, from 1. Until the commit nobody else gets one."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE workspaces IN SHARE ROW EXCLUSIVE MODE"))
    return (connection.execute(select(func.max(tables.workspaces.c.number))).scalar() or 0) + 1


def insert_workspace(connection: Connection, row: WorkspaceRow) -> None:
    """Store a new workspace; a name that is taken is refused."""
    try:
        connection.execute(insert(tables.workspaces).values(**to_values(row)))
    except IntegrityError as fault:
        if not is_duplicate(fault):
            raise
        if _is_number_clash(fault):
            raise Conflict("Another workspace was created at the same moment.", hint="Try again.") from None
        raise Conflict(
            f"There is already a workspace named '{row.name}'.",
            hint="Choose another name.",
            code="name_taken",
            where="name",
        ) from None


def _is_number_clash(fault: IntegrityError) -> bool:
    return "number" in str(fault.orig).splitlines()[0]


def workspace_by_id(connection: Connection, workspace_id: str) -> WorkspaceRow | None:
    """The workspace of that id, deleted or not."""
    if not is_text(workspace_id):
        return None
    row = connection.execute(_BY_ID, {"wanted": workspace_id}).first()
    return None if row is None else from_row(WorkspaceRow, row)


def workspace_by_name(connection: Connection, name: str) -> WorkspaceRow | None:
    """The workspace of that name that was not deleted."""
    if not is_text(name):
        return None
    workspaces = tables.workspaces
    query = select(workspaces).where(workspaces.c.name == name, workspaces.c.deleted_at.is_(None))
    row = connection.execute(query).first()
    return None if row is None else from_row(WorkspaceRow, row)


def list_workspaces(connection: Connection) -> list[WorkspaceRow]:
    """All workspaces that were not deleted, oldest first."""
    workspaces = tables.workspaces
    query = select(workspaces).where(workspaces.c.deleted_at.is_(None)).order_by(workspaces.c.number)
    return [from_row(WorkspaceRow, row) for row in connection.execute(query)]


def change_workspace(connection: Connection, row: WorkspaceRow, **changes: Any) -> WorkspaceRow:
    """The workspace with the changes made."""
    connection.execute(update(tables.workspaces).where(tables.workspaces.c.id == row.id).values(**changes))
    return dataclasses.replace(row, **changes)


def lock_workspace(connection: Connection, workspace_id: str) -> bool:
    """Hold the workspace until the commit: neither its end nor a new job of it can come in between."""
    return connection.execute(_LOCK, {"wanted": workspace_id}).first() is not None


def has_active_jobs(connection: Connection, workspace_id: str) -> bool:
    """Whether jobs of the workspace are under way."""
    jobs = tables.jobs
    query = select(jobs.c.id).where(
        text(f"NOT ({tables.ENDED_PHASES_SQL})"), jobs.c.workspace_id == workspace_id
    )
    return connection.execute(query.limit(1)).first() is not None


def set_member(connection: Connection, row: MemberRow) -> None:
    """Give a user a role in a workspace, in place of the one they had."""
    remove_member(connection, row.workspace_id, row.user_id)
    connection.execute(insert(tables.members).values(**to_values(row)))


def remove_member(connection: Connection, workspace_id: str, user_id: str) -> bool:
    """Take a user out of a workspace; False when they were not in it."""
    members = tables.members
    done = connection.execute(
        delete(members).where(members.c.workspace_id == workspace_id, members.c.user_id == user_id)
    )
    return done.rowcount > 0


def role_of(connection: Connection, workspace_id: str, user_id: str) -> str:
    """The user's role in the workspace, or empty."""
    return connection.execute(_ROLE, {"workspace": workspace_id, "user": user_id}).scalar() or ""


def roles_of_user(connection: Connection, user_id: str) -> list[MemberRow]:
    """In which workspaces a user has which role, the oldest membership first."""
    members, workspaces = tables.members, tables.workspaces
    query = (
        select(members)
        .join(workspaces, workspaces.c.id == members.c.workspace_id)
        .where(members.c.user_id == user_id, workspaces.c.deleted_at.is_(None))
        .order_by(members.c.created_at, workspaces.c.number)
    )
    return [from_row(MemberRow, row) for row in connection.execute(query)]


def members_of(connection: Connection, workspace_id: str) -> list[tuple[MemberRow, str]]:
    """The members of a workspace, each with the user's name, by name."""
    members, users = tables.members, tables.users
    query = (
        select(members, users.c.name)
        .join(users, users.c.id == members.c.user_id)
        .where(members.c.workspace_id == workspace_id)
        .order_by(users.c.name)
    )
    return [(from_row(MemberRow, row), row._mapping["name"]) for row in connection.execute(query)]
