"""API tokens: random, shown once, stored as a hash, with scopes and an end."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from trainshed.db import tokens as db
from trainshed.db.engine import begin, read
from trainshed.db.tokens import TokenRow
from trainshed.db.workspaces import role_of, workspace_by_id, workspace_by_name
from trainshed.model.errors import InvalidInput, NotAllowed, NotFound, suggest
from trainshed.services.access import SCOPES, has_scope, may, require
from trainshed.services.identity import TOKEN_PREFIX, Caller, hash_secret
from trainshed.services.platform import Platform

__all__ = ["NewToken", "TokenView", "create_token", "issue_token", "list_tokens", "new_token", "revoke_token"]

_DAY = 86400.0
_MOST_DAYS = 3650


@dataclass(frozen=True)
class TokenView:
    """A token without its secret."""

    id: str
    name: str
    scopes: list[str]
    created_at: float
    expires_at: float | None


@dataclass(frozen=True)
class NewToken:
    """A token that was just made: the only moment at which it can be seen."""

    id: str
    name: str
    token: str = field(repr=False)
    scopes: list[str]
    created_at: float
    expires_at: float | None


@dataclass(frozen=True)
class _Own:
    workspace_id: str
    owner_id: str


def new_token() -> str:
    """A fresh random token of 256 bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def create_token(
    platform: Platform,
    caller: Caller,
    name: str,
    scopes: Iterable[str] = ("*",),
    days: float | None = None,
    workspace: str = "",
) -> NewToken:
    """Make a token for the caller. It can do no more than the credential in use.

    `days` is how long it is valid; by default as long as the platform's settings say. `workspace` is the name
    or id of another workspace of the caller in which it acts; an administrator can name any.
    """
    require(caller, "token.manage", _Own(caller.workspace_id, caller.user_id))
    wanted = sorted(set(scopes))
    _check(platform, caller, name, wanted, days)
    lifetime = _DAY * (platform.settings.token_days if days is None else days)
    with begin(platform.engine) as connection:
        workspace_id = _place(connection, caller, workspace)
        return issue_token(connection, platform.clock(), caller.user_id, workspace_id, name, wanted, lifetime)


def issue_token(
    connection: Connection,
    now: float,
    user_id: str,
    workspace_id: str,
    name: str,
    scopes: list[str],
    seconds: float | None,
    token: str = "",
) -> NewToken:
    """Store a token without asking for permission: for the platform's own use (first start, sign-in)."""
    token = token or new_token()
    row = TokenRow(
        id=uuid.uuid4().hex,
        hash=hash_secret(token),
        user_id=user_id,
        workspace_id=workspace_id,
        name=name,
        scopes=scopes,
        created_at=now,
        expires_at=None if seconds is None else now + seconds,
    )
    db.insert_token(connection, row)
    return NewToken(row.id, name, token, scopes, now, row.expires_at)


def list_tokens(platform: Platform, caller: Caller) -> list[TokenView]:
    """The caller's tokens in the workspace, newest first."""
    require(caller, "token.manage", _Own(caller.workspace_id, caller.user_id))
    with read(platform.engine) as connection:
        return [_view(row) for row in db.tokens_of_user(connection, caller.user_id, caller.workspace_id)]


def revoke_token(platform: Platform, caller: Caller, token_id: str) -> None:
    """Make one of the caller's tokens unusable at once."""
    require(caller, "token.manage", _Own(caller.workspace_id, caller.user_id))
    with begin(platform.engine) as connection:
        mine = {row.id for row in db.tokens_of_user(connection, caller.user_id, caller.workspace_id)}
        if token_id not in mine:
            raise NotFound("There is no such token.", hint="`trainshed token list` shows yours.")
        db.delete_token(connection, token_id)


def _place(connection: Connection, caller: Caller, workspace: str) -> str:
    """The workspace in which a new token acts."""
    if not workspace:
        return caller.workspace_id
    found = workspace_by_name(connection, workspace) or workspace_by_id(connection, workspace)
    if found is not None and found.deleted_at is None:
        if found.id == caller.workspace_id or may(caller, "workspace.manage"):
            return found.id
        # A narrow token stays where it is; only the user as a whole moves between workspaces.
        if "*" in caller.scopes and not caller.job_id and role_of(connection, found.id, caller.user_id):
            return found.id
    raise NotFound(f"There is no workspace '{workspace[:80]}'.", code="unknown_workspace", where="workspace")


def _check(platform: Platform, caller: Caller, name: str, scopes: list[str], days: float | None) -> None:
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise InvalidInput("A token's name is 1 to 64 characters on one line.", where="name")
    if not scopes:
        raise InvalidInput("A token needs at least one scope.", hint="Use * for all.", where="scopes")
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidInput(
                f"There is no scope '{scope[:80]}'.", hint=suggest(scope, SCOPES), where="scopes"
            )
        # A wildcard is covered by the same wildcard only; the parts of it are not looked at one by one.
        if not has_scope(caller.scopes, scope):
            raise NotAllowed(
                f"The credential in use does not have the scope '{scope}' and cannot pass it on.",
                hint="Use a token with more scopes.",
                code="scope_missing",
            )
    if days is not None and not 0 < days <= _MOST_DAYS:
        raise InvalidInput(f"A token is valid for at most {_MOST_DAYS} days.", where="days")


def _view(row: TokenRow) -> TokenView:
    return TokenView(row.id, row.name, list(row.scopes), row.created_at, row.expires_at)
