"""Users: made, listed, given passwords and shut out by administrators."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from sqlalchemy import Connection

from trainshed.db import access_keys as db_access_keys
from trainshed.db import sessions as db_sessions
from trainshed.db import tokens as db_tokens
from trainshed.db import users as db
from trainshed.db.engine import begin, read
from trainshed.db.users import UserRow
from trainshed.model.errors import Conflict, InvalidInput, NotAuthenticated, NotFound
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.passwords import check_password_strength, hash_password, verify_password
from trainshed.services.platform import Platform

__all__ = [
    "UserView",
    "create_user",
    "disable_user",
    "enable_user",
    "list_users",
    "set_admin",
    "set_password",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True)
class UserView:
    """A user, as administrators see them."""

    id: str
    name: str
    is_admin: bool
    created_at: float
    disabled_at: float | None


@dataclass(frozen=True)
class _Account:
    owner_id: str


def create_user(
    platform: Platform, caller: Caller, name: str, password: str = "", is_admin: bool = False
) -> UserView:
    """Make a user. Without a password they sign in by a login link."""
    require(caller, "user.manage")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"'{name[:80]}' is not a user name.",
            hint="Use 1 to 64 letters, digits, '.', '_', '@' or '-', beginning with a letter or digit.",
            where="name",
        )
    hashed = hash_password(check_password_strength(password)) if password else ""
    row = UserRow(uuid.uuid4().hex, name, is_admin, platform.clock(), hashed)
    with begin(platform.engine) as connection:
        db.insert_user(connection, row)
    return _view(row)


def list_users(platform: Platform, caller: Caller) -> list[UserView]:
    """All users of the platform, by name."""
    require(caller, "user.manage")
    with read(platform.engine) as connection:
        return [_view(row) for row in db.list_users(connection)]


def set_password(platform: Platform, caller: Caller, name: str, password: str, current: str = "") -> None:
    """Give a user a new password. One's own needs the current one, if there is one. Sessions end."""
    own = name == caller.user_name
    require(caller, "user.password", _Account(caller.user_id if own else ""))
    check_password_strength(password)
    with read(platform.engine) as connection:
        user = _find(connection, name)
    if (
        own
        and user.password_hash
        and not verify_password(user.name, current, user.password_hash, platform.clock())
    ):
        raise NotAuthenticated("The current password is wrong.", code="bad_password", where="current")
    hashed = hash_password(password)
    with begin(platform.engine) as connection:
        db.change_user(connection, user, password_hash=hashed)
        db_sessions.delete_sessions_of_user(connection, user.id)


def disable_user(platform: Platform, caller: Caller, name: str) -> UserView:
    """Shut a user out at once: tokens, keys and sessions are gone. Their jobs go on."""
    require(caller, "user.manage")
    with begin(platform.engine) as connection:
        user = _find(connection, name)
        _keep_one_admin(connection, user)
        user = db.change_user(connection, user, disabled_at=user.disabled_at or platform.clock())
        db_tokens.delete_tokens_of_user(connection, user.id)
        db_access_keys.delete_access_keys_of_user(connection, user.id)
        db_sessions.delete_sessions_of_user(connection, user.id)
    return _view(user)


def enable_user(platform: Platform, caller: Caller, name: str) -> UserView:
    """Let a user in again; they need new tokens."""
    require(caller, "user.manage")
    with begin(platform.engine) as connection:
        return _view(db.change_user(connection, _find(connection, name), disabled_at=None))


def set_admin(platform: Platform, caller: Caller, name: str, is_admin: bool) -> UserView:
    """Make a user an administrator, or an ordinary user again."""
    require(caller, "user.manage")
    with begin(platform.engine) as connection:
        user = _find(connection, name)
        if not is_admin:
            _keep_one_admin(connection, user)
        return _view(db.change_user(connection, user, is_admin=is_admin))


def _find(connection: Connection, name: str) -> UserRow:
    user = db.user_by_name(connection, name)
    if user is None:
        raise NotFound(f"There is no user '{name[:80]}'.", code="unknown_user", where="user")
    return user


def _keep_one_admin(connection: Connection, user: UserRow) -> None:
    if db.lock_admins(connection) == [user.id]:
        raise Conflict(
            f"'{user.name}' is the only administrator.", hint="Make another user an administrator first."
        )


def _view(row: UserRow) -> UserView:
    return UserView(row.id, row.name, row.is_admin, row.created_at, row.disabled_at)
