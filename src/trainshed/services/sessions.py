"""Signing in: one-time login links, passwords, and the console's sessions."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

from sqlalchemy import Connection

from trainshed.db import sessions as db
from trainshed.db import users as db_users
from trainshed.db import workspaces as db_workspaces
from trainshed.db.engine import begin, read
from trainshed.db.sessions import LoginLinkRow, SessionRow
from trainshed.db.users import UserRow
from trainshed.model.errors import NotAllowed, NotAuthenticated, NotFound
from trainshed.services.access import require
from trainshed.services.identity import EVERYTHING, Caller, hash_secret, identify
from trainshed.services.passwords import verify_password
from trainshed.services.platform import Platform
from trainshed.services.tokens import NewToken, issue_token

__all__ = [
    "LINK_SECONDS",
    "SESSION_SECONDS",
    "NewSession",
    "Session",
    "authenticate_session",
    "check_csrf",
    "create_login_link",
    "issue_login_link",
    "sign_in_with_link",
    "sign_in_with_password",
    "sign_out",
    "switch_workspace",
    "token_for_password",
]

LINK_SECONDS = 900.0
SESSION_SECONDS = 7 * 86400.0
_DAY = 86400.0


@dataclass(frozen=True)
class NewSession:
    """A session that was just opened: `cookie` is for the browser only."""

    cookie: str
    csrf: str
    expires_at: float
    caller: Caller


@dataclass(frozen=True)
class Session:
    """A browser that is signed in. Every form it sends must carry `csrf`."""

    caller: Caller
    csrf: str
    expires_at: float


def create_login_link(platform: Platform, caller: Caller, user_name: str = "") -> str:
    """The code of a link that signs a user in once. For another user only an administrator can make it."""
    with begin(platform.engine) as connection:
        user = db_users.user_by_name(connection, user_name or caller.user_name)
        if user is None or user.id != caller.user_id:
            require(caller, "user.manage")
        else:
            # A link opens a session with all of the user's rights: a lesser credential must not make one.
            if "*" not in caller.scopes or caller.job_id:
                raise NotAllowed(
                    "The credential in use does not reach far enough to sign in with.",
                    hint="Use a token with the scope '*'.",
                    code="scope_missing",
                )
        if user is None:
            raise NotFound(f"There is no user '{user_name[:80]}'.", where="user")
        return issue_login_link(connection, user.id, platform.clock(), LINK_SECONDS)


def issue_login_link(connection: Connection, user_id: str, now: float, seconds: float, code: str = "") -> str:
    """Store a login link without asking for permission: for the first start."""
    code = code or secrets.token_urlsafe(32)
    db.insert_login_link(connection, LoginLinkRow(hash_secret(code), user_id, now, now + seconds))
    return code


def sign_in_with_link(platform: Platform, code: str) -> NewSession:
    """Open a session with a login link; the link is used up by it."""
    now = platform.clock()
    with begin(platform.engine) as connection:
        link = db.use_login_link(connection, hash_secret(code), now)
        user = db_users.user_by_id(connection, link.user_id) if link else None
        if user is None or user.disabled_at is not None:
            raise NotAuthenticated(
                "This login link is unknown, was used already, or is too old.",
                hint="`trainshed login-link` makes a new one.",
                code="bad_login_link",
            )
        return _open(connection, user, now)


def sign_in_with_password(platform: Platform, user_name: str, password: str) -> NewSession:
    """Open a session with a name and a password."""
    user = _verified(platform, user_name, password)
    with begin(platform.engine) as connection:
        return _open(connection, user, platform.clock())


def token_for_password(platform: Platform, user_name: str, password: str, workspace: str = "") -> NewToken:
    """A token for the command line, in the named workspace or the user's first one."""
    user = _verified(platform, user_name, password)
    with begin(platform.engine) as connection:
        workspace_id = _home_of(connection, user)
        if workspace:
            found = db_workspaces.workspace_by_name(connection, workspace)
            member = found and (user.is_admin or db_workspaces.role_of(connection, found.id, user.id))
            if found is None or not member:
                raise NotFound(f"There is no workspace '{workspace[:80]}'.", where="workspace")
            workspace_id = found.id
        lifetime = _DAY * platform.settings.token_days
        return issue_token(connection, platform.clock(), user.id, workspace_id, "login", ["*"], lifetime)


def authenticate_session(platform: Platform, cookie: str) -> Session:
    """The session behind a cookie; an unknown or expired one is refused."""
    with read(platform.engine) as connection:
        row = db.session_by_hash(connection, hash_secret(cookie))
        if row is None or row.expires_at <= platform.clock():
            raise NotAuthenticated("Nobody is signed in.", hint="Sign in again.", code="no_session")
        caller = identify(connection, row.user_id, row.workspace_id, EVERYTHING)
    return Session(caller, row.csrf, row.expires_at)


def check_csrf(session: Session, given: str) -> None:
    """Refuse a form that was not made by the console for this session."""
    if not hmac.compare_digest(session.csrf.encode(), given.encode("utf-8", "replace")):
        raise NotAllowed("The form is not of this session.", hint="Load the page again.", code="bad_csrf")


def switch_workspace(platform: Platform, cookie: str, workspace_id: str) -> Session:
    """Let the session act in another workspace of its user."""
    session = authenticate_session(platform, cookie)
    with begin(platform.engine) as connection:
        found = db_workspaces.workspace_by_id(connection, workspace_id)
        if found is None or found.deleted_at is not None:
            raise NotFound("There is no such workspace.", where="workspace")
        role = db_workspaces.role_of(connection, found.id, session.caller.user_id)
        if not role and not session.caller.is_admin:
            raise NotFound("There is no such workspace.", where="workspace")
        db.change_session_workspace(connection, hash_secret(cookie), workspace_id)
    return authenticate_session(platform, cookie)


def sign_out(platform: Platform, cookie: str) -> None:
    """End a session."""
    with begin(platform.engine) as connection:
        db.delete_session(connection, hash_secret(cookie))


def _verified(platform: Platform, user_name: str, password: str) -> UserRow:
    with read(platform.engine) as connection:
        user = db_users.user_by_name(connection, user_name)
    stored = user.password_hash if user is not None and user.disabled_at is None else ""
    if not verify_password(user_name[:64], password, stored, platform.clock()) or user is None:
        raise NotAuthenticated(
            "The name or the password is wrong.",
            hint="Ask an administrator for a login link.",
            code="bad_password",
        )
    return user


def _open(connection: Connection, user: UserRow, now: float) -> NewSession:
    db.forget_expired(connection, now)
    cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(24)
    workspace_id = _home_of(connection, user)
    db.insert_session(
        connection, SessionRow(hash_secret(cookie), user.id, workspace_id, csrf, now, now + SESSION_SECONDS)
    )
    caller = identify(connection, user.id, workspace_id, EVERYTHING)
    return NewSession(cookie, csrf, now + SESSION_SECONDS, caller)


def _home_of(connection: Connection, user: UserRow) -> str:
    """The workspace in which a user begins: the first one they joined."""
    roles = db_workspaces.roles_of_user(connection, user.id)
    if roles:
        return roles[0].workspace_id
    everyone = db_workspaces.list_workspaces(connection) if user.is_admin else []
    if everyone:
        return everyone[0].id
    raise NotAllowed(
        "You are not a member of any workspace.", hint="Ask an administrator to add you.", code="no_workspace"
    )
