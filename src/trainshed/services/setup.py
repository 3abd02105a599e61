"""The first start: an administrator, a workspace, and the credentials to begin with."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from trainshed.db import users as db_users
from trainshed.db import workspaces as db_workspaces
from trainshed.db.engine import begin, read
from trainshed.db.users import UserRow
from trainshed.db.workspaces import MemberRow, WorkspaceRow
from trainshed.model.errors import Conflict, NotFound
from trainshed.services.access_keys import KeyPair, issue_access_key
from trainshed.services.platform import Platform
from trainshed.services.sessions import issue_login_link
from trainshed.services.tokens import issue_token, new_token
from trainshed.services.vault import ensure_key, write_once

__all__ = ["FirstStart", "finish_first_start", "first_start", "issue_admin_access"]

_ADMIN = "admin"
_WORKSPACE = "default"
_LINK_SECONDS = 86400.0


@dataclass(frozen=True)
class FirstStart:
    """What the first start made: shown once, to the person who started the platform."""

    user_name: str
    workspace_id: str
    token: str
    # Signs in once: <url>/login?code=<login_code>.
    login_code: str
    access_key: str
    secret_key: str


def first_start(platform: Platform) -> FirstStart | None:
    """Make the administrator and the default workspace, or None when that was done and handed over before.

    What was made is kept in a private file until `finish_first_start` is called (or the command line's
    `client.json` exists): a start that dies in between hands over the same credentials at the next try.
    """
    ensure_key(platform)
    with read(platform.engine) as connection:
        done = db_users.count_admins(connection) > 0
    if done:
        if platform.home.client.exists():
            finish_first_start(platform)
        return _read(_pending(platform))
    made = _remembered(platform)
    try:
        stored = _store(platform, made)
    except Conflict:
        stored = False
    return made if stored else first_start(platform)


def finish_first_start(platform: Platform) -> None:
    """The credentials of the first start were handed over: forget them."""
    _pending(platform).unlink(missing_ok=True)


def issue_admin_access(platform: Platform) -> FirstStart:
    """A new token and login link for an administrator: for whoever owns the home folder and lost theirs."""
    now = platform.clock()
    with begin(platform.engine) as connection:
        admins = [
            user for user in db_users.list_users(connection) if user.is_admin and user.disabled_at is None
        ]
        spaces = db_workspaces.list_workspaces(connection)
        if not admins or not spaces:
            raise NotFound("This platform has no administrator yet.", hint="Start it once: `trainshed up`.")
        admin = next((user for user in admins if user.name == _ADMIN), admins[0])
        token = issue_token(connection, now, admin.id, spaces[0].id, "host", ["*"], None)
        code = issue_login_link(connection, admin.id, now, _LINK_SECONDS)
        pair = issue_access_key(platform, connection, admin.id, spaces[0].id, "host")
    return FirstStart(admin.name, spaces[0].id, token.token, code, pair.access_key, pair.secret_key)


def _store(platform: Platform, made: FirstStart) -> bool:
    """Store everything in one transaction; False when another process was faster."""
    now = platform.clock()
    with begin(platform.engine) as connection:
        if db_users.lock_admins(connection):
            return False
        admin = UserRow(uuid.uuid4().hex, _ADMIN, True, now)
        db_users.insert_user(connection, admin)
        number = db_workspaces.next_number(connection)
        db_workspaces.insert_workspace(connection, WorkspaceRow(made.workspace_id, number, _WORKSPACE, now))
        db_workspaces.set_member(connection, MemberRow(made.workspace_id, admin.id, "manager", now))
        # This token lies in the home of whoever owns the platform anyway: it needs no end.
        issue_token(connection, now, admin.id, made.workspace_id, "host", ["*"], None, made.token)
        pair = KeyPair(made.access_key, made.secret_key)
        issue_access_key(platform, connection, admin.id, made.workspace_id, "default", pair=pair)
        issue_login_link(connection, admin.id, now, _LINK_SECONDS, made.login_code)
    return True


def _remembered(platform: Platform) -> FirstStart:
    """What this first start makes, or what an earlier try that died was about to make."""
    path = _pending(platform)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # One at a time: a second starter must find what the first one wrote, not write its own in its place.
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = _read(path)
        if known is not None:
            return known
        made = FirstStart(
            user_name=_ADMIN,
            workspace_id=uuid.uuid4().hex,
            token=new_token(),
            login_code=secrets.token_urlsafe(32),
            access_key="AK" + secrets.token_hex(9).upper(),
            secret_key=secrets.token_urlsafe(30),
        )
        path.unlink(missing_ok=True)
        write_once(path, json.dumps(asdict(made)).encode())
        return _read(path) or made
    finally:
        os.close(lock)


def _pending(platform: Platform) -> Path:
    return platform.home.run / "first-start.json"


def _read(path: Path) -> FirstStart | None:
    try:
        return FirstStart(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
