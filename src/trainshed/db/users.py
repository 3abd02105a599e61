"""People in the database."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from trainshed.db import tables
from trainshed.db.engine import is_duplicate, is_text
from trainshed.db.row import from_row, to_values
from trainshed.model.errors import Conflict

__all__ = [
    "UserRow",
    "change_user",
    "count_admins",
    "insert_user",
    "list_users",
    "lock_admins",
    "user_by_id",
    "user_by_name",
]

# Built once: building a statement takes longer than to run it.
_BY_ID = select(tables.users).where(tables.users.c.id == bindparam("wanted"))


@dataclass(frozen=True)
class UserRow:
    """A person. An empty password hash means that nobody signs in with a password."""

    id: str
    name: str
    is_admin: bool
    created_at: float
    password_hash: str = ""
    disabled_at: float | None = None


def insert_user(connection: Connection, row: UserRow) -> None:
    """Store a new user; a name that is taken is refused."""
    try:
        connection.execute(insert(tables.users).values(**to_values(row)))
    except IntegrityError as fault:
        if not is_duplicate(fault):
            raise
        raise Conflict(
            f"There is already a user named '{row.name}'.",
            hint="Choose another name.",
            code="name_taken",
            where="name",
        ) from None


def user_by_id(connection: Connection, user_id: str) -> UserRow | None:
    """The user of that id."""
    row = connection.execute(_BY_ID, {"wanted": user_id}).first()
    return None if row is None else from_row(UserRow, row)


def user_by_name(connection: Connection, name: str) -> UserRow | None:
    """The user of that name."""
    if not is_text(name):
        return None
    row = connection.execute(select(tables.users).where(tables.users.c.name == name)).first()
    return None if row is None else from_row(UserRow, row)


def list_users(connection: Connection) -> list[UserRow]:
    """All users, by name."""
    query = select(tables.users).order_by(tables.users.c.name)
    return [from_row(UserRow, row) for row in connection.execute(query)]


def count_admins(connection: Connection) -> int:
    """How many administrators can sign in."""
    users = tables.users
    query = select(func.count()).where(users.c.is_admin.is_(True), users.c.disabled_at.is_(None))
    return connection.execute(query).scalar_one()


def lock_admins(connection: Connection) -> list[str]:
    """The ids of all administrators that can sign in; until the commit nobody else can change them."""
    users = tables.users
    query = select(users.c.id).where(users.c.is_admin.is_(True), users.c.disabled_at.is_(None))
    return list(connection.execute(query.with_for_update()).scalars())


def change_user(connection: Connection, row: UserRow, **changes: Any) -> UserRow:
    """The user with the changes made."""
    connection.execute(update(tables.users).where(tables.users.c.id == row.id).values(**changes))
    return dataclasses.replace(row, **changes)
