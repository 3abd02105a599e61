"""Workspaces and who belongs to them."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from sqlalchemy import Connection

from trainshed.db import access_keys as db_access_keys
from trainshed.db import tokens as db_tokens
from trainshed.db import users as db_users
from trainshed.db import workspaces as db
from trainshed.db.engine import begin, read
from trainshed.db.workspaces import MemberRow, WorkspaceRow
from trainshed.model.errors import Conflict, InvalidInput, NotFound, suggest
from trainshed.services.access import ROLES, may, require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform

__all__ = [
    "MemberView",
    "WorkspaceView",
    "create_workspace",
    "delete_workspace",
    "get_workspace",
    "list_members",
    "list_workspaces",
    "remove_member",
    "set_member",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class WorkspaceView:
    """A workspace, and the caller's role in it. The id is the `project_id` of the cloud APIs."""

    id: str
    name: str
    number: int
    role: str
    created_at: float


@dataclass(frozen=True)
class MemberView:
    """A member of a workspace."""

    user_id: str
    user_name: str
    role: str


@dataclass(frozen=True)
class _Place:
    workspace_id: str


def list_workspaces(platform: Platform, caller: Caller) -> list[WorkspaceView]:
    """The workspaces that the caller is a member of; an administrator sees all."""
    require(caller, "workspace.read")
    with read(platform.engine) as connection:
        roles = {row.workspace_id: row.role for row in db.roles_of_user(connection, caller.user_id)}
        rows = db.list_workspaces(connection)
    everywhere = may(caller, "workspace.manage")
    return [_view(row, roles.get(row.id, "")) for row in rows if everywhere or row.id in roles]


def get_workspace(platform: Platform, caller: Caller, ref: str = "") -> WorkspaceView:
    """One workspace by id or name; without either, the caller's own."""
    with read(platform.engine) as connection:
        row = _find(connection, caller, ref, "workspace.read")
        return _view(row, db.role_of(connection, row.id, caller.user_id))


def create_workspace(platform: Platform, caller: Caller, name: str) -> WorkspaceView:
    """Make a workspace; its maker becomes its manager."""
    require(caller, "workspace.manage")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"'{name[:80]}' is not a workspace name.",
            hint="Use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit.",
            where="name",
        )
    now = platform.clock()
    with begin(platform.engine) as connection:
        row = WorkspaceRow(uuid.uuid4().hex, db.next_number(connection), name, now)
        db.insert_workspace(connection, row)
        db.set_member(connection, MemberRow(row.id, caller.user_id, "manager", now))
    return _view(row, "manager")


def delete_workspace(platform: Platform, caller: Caller, ref: str) -> None:
    """Remove a workspace that has no buckets and no jobs under way."""
    require(caller, "workspace.manage")
    with read(platform.engine) as connection:
        row = _find(connection, caller, ref, "workspace.manage")
    buckets = platform.store.buckets(row.id)
    if buckets:
        raise Conflict(
            f"The workspace still has {len(buckets)} buckets, such as '{buckets[0].name}'.",
            hint="Delete them first.",
        )
    with begin(platform.engine) as connection:
        if db.lock_workspace(connection, row.id) and db.has_active_jobs(connection, row.id):
            raise Conflict("Jobs of the workspace are still under way.", hint="Stop them first.")
        db.change_workspace(connection, row, deleted_at=platform.clock())


def list_members(platform: Platform, caller: Caller, ref: str = "") -> list[MemberView]:
    """Who belongs to a workspace, and as what."""
    with read(platform.engine) as connection:
        row = _find(connection, caller, ref, "workspace.read")
        return [MemberView(m.user_id, name, m.role) for m, name in db.members_of(connection, row.id)]


def set_member(platform: Platform, caller: Caller, user_name: str, role: str, ref: str = "") -> MemberView:
    """Add a user to a workspace, or change their role in it."""
    if role not in ROLES:
        raise InvalidInput(f"There is no role '{role[:80]}'.", hint=suggest(role, ROLES), where="role")
    with begin(platform.engine) as connection:
        row = _find(connection, caller, ref, "member.manage")
        user = db_users.user_by_name(connection, user_name)
        if user is None:
            raise NotFound(f"There is no user '{user_name[:80]}'.", code="unknown_user", where="user")
        db.set_member(connection, MemberRow(row.id, user.id, role, platform.clock()))
    return MemberView(user.id, user.name, role)


def remove_member(platform: Platform, caller: Caller, user_name: str, ref: str = "") -> None:
    """Take a user out of a workspace: their tokens and keys for it are gone at once."""
    with begin(platform.engine) as connection:
        row = _find(connection, caller, ref, "member.manage")
        members = {name: member.user_id for member, name in db.members_of(connection, row.id)}
        if user_name not in members:
            raise NotFound(f"There is no member '{user_name[:80]}'.", code="unknown_user", where="user")
        db.remove_member(connection, row.id, members[user_name])
        db_tokens.delete_tokens_of_user(connection, members[user_name], row.id)
        db_access_keys.delete_access_keys_of_user(connection, members[user_name], row.id)


def _find(connection: Connection, caller: Caller, ref: str, action: str) -> WorkspaceRow:
    ref = ref or caller.workspace_id
    row = db.workspace_by_id(connection, ref) or db.workspace_by_name(connection, ref)
    if row is None or row.deleted_at is not None:
        raise _missing(ref)
    if row.id != caller.workspace_id and not may(caller, action, _Place(row.id)):
        raise _missing(ref)
    require(caller, action, _Place(row.id))
    return row


def _missing(ref: str) -> NotFound:
    return NotFound(f"There is no workspace '{ref[:80]}'.", code="unknown_workspace", where="workspace")


def _view(row: WorkspaceRow, role: str) -> WorkspaceView:
    return WorkspaceView(row.id, row.name, row.number, role, row.created_at)
