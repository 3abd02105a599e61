"""Access-key pairs: how programs sign requests to the object store and the cloud APIs."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass

from sqlalchemy import Connection

from trainshed.db import access_keys as db
from trainshed.db.access_keys import AccessKeyRow
from trainshed.db.engine import begin, read
from trainshed.model.errors import InvalidInput, NotAuthenticated, NotFound, TooLarge
from trainshed.services.access import require
from trainshed.services.credential_cache import cache_of
from trainshed.services.identity import EVERYTHING, Caller, identify
from trainshed.services.platform import Platform
from trainshed.services.vault import seal, unseal

__all__ = [
    "JOB_SCOPES",
    "AccessKeyView",
    "KeyOwner",
    "KeyPair",
    "authenticate_access_key",
    "create_access_key",
    "default_access_key",
    "delete_access_key",
    "issue_access_key",
    "list_access_keys",
]

# What a job may do with the credentials it was given.
JOB_SCOPES = frozenset({"objects:*", "metrics:write"})

_LETTERS = string.ascii_uppercase + string.digits
_SECRET_LETTERS = string.ascii_letters + string.digits
_MOST_KEYS = 20
_DEFAULT = "default"


@dataclass(frozen=True)
class AccessKeyView:
    """A pair without its secret half."""

    access_key: str
    name: str
    created_at: float


@dataclass(frozen=True)
class KeyPair:
    """A pair with its secret half."""

    access_key: str
    secret_key: str


@dataclass(frozen=True)
class KeyOwner:
    """Whom a signed request claims to come from, and the secret that its signature must be made with."""

    caller: Caller
    secret_key: str


@dataclass(frozen=True)
class _Own:
    workspace_id: str
    owner_id: str


def create_access_key(platform: Platform, caller: Caller, name: str) -> KeyPair:
    """Make a pair for the caller in the caller's workspace."""
    _require_own(caller)
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise InvalidInput("A key's name is 1 to 64 characters on one line.", where="name")
    with begin(platform.engine) as connection:
        if len(db.access_keys_of_user(connection, caller.user_id, caller.workspace_id)) >= _MOST_KEYS:
            raise TooLarge(f"A user has at most {_MOST_KEYS} access keys.", hint="Delete one first.")
        return issue_access_key(platform, connection, caller.user_id, caller.workspace_id, name)


def default_access_key(platform: Platform, caller: Caller) -> KeyPair:
    """The caller's own pair for everyday use, made at the first time it is asked for."""
    _require_own(caller)
    with begin(platform.engine) as connection:
        for row in db.access_keys_of_user(connection, caller.user_id, caller.workspace_id):
            if row.name == _DEFAULT:
                return KeyPair(row.access_key, _open(platform, row))
        return issue_access_key(platform, connection, caller.user_id, caller.workspace_id, _DEFAULT)


def issue_access_key(
    platform: Platform,
    connection: Connection,
    user_id: str,
    workspace_id: str,
    name: str,
    *,
    pair: KeyPair | None = None,
    job_id: str | None = None,
) -> KeyPair:
    """Store a pair without asking for permission: for the platform's own use (first start, jobs)."""
    pair = pair or KeyPair(_random(_LETTERS, 20), _random(_SECRET_LETTERS, 40))
    sealed = seal(platform, pair.secret_key.encode(), _purpose(pair.access_key))
    row = AccessKeyRow(pair.access_key, sealed, user_id, workspace_id, name, platform.clock(), job_id)
    db.insert_access_key(connection, row)
    return pair


def list_access_keys(platform: Platform, caller: Caller) -> list[AccessKeyView]:
    """The caller's pairs in the workspace, oldest first."""
    _require_own(caller)
    with read(platform.engine) as connection:
        rows = db.access_keys_of_user(connection, caller.user_id, caller.workspace_id)
    return [AccessKeyView(row.access_key, row.name, row.created_at) for row in rows]


def delete_access_key(platform: Platform, caller: Caller, access_key: str) -> None:
    """Make one of the caller's pairs unusable at once."""
    _require_own(caller)
    with begin(platform.engine) as connection:
        rows = db.access_keys_of_user(connection, caller.user_id, caller.workspace_id)
        if access_key not in {row.access_key for row in rows}:
            raise NotFound("There is no such access key.", hint="`trainshed key list` shows yours.")
        db.delete_access_key(connection, access_key)


def authenticate_access_key(platform: Platform, access_key: str) -> KeyOwner:
    """The owner and the secret of a pair; the caller is known only once the signature was compared."""

    def load() -> KeyOwner:
        with read(platform.engine) as connection:
            row = db.access_key(connection, access_key)
            if row is None:
                raise NotAuthenticated(
                    "The access key is not known.",
                    hint="`trainshed credentials` shows yours.",
                    code="unknown_access_key",
                )
            scopes = JOB_SCOPES if row.job_id else EVERYTHING
            caller = identify(connection, row.user_id, row.workspace_id, scopes, row.job_id or "")
        return KeyOwner(caller, _open(platform, row))

    return cache_of(platform.engine).find("access-key", access_key, load)


def _require_own(caller: Caller) -> None:
    require(caller, "key.manage", _Own(caller.workspace_id, caller.user_id))


def _open(platform: Platform, row: AccessKeyRow) -> str:
    return unseal(platform, row.sealed_secret, _purpose(row.access_key)).decode()


def _purpose(access_key: str) -> str:
    return f"access-key:{access_key}"


def _random(letters: str, length: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(length))
