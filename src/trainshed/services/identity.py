"""Who calls: from a token, an access key or a session to a caller with a role and scopes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import Connection

from trainshed.db import jobs as db_jobs
from trainshed.db import tokens as db_tokens
from trainshed.db import users as db_users
from trainshed.db import workspaces as db_workspaces
from trainshed.db.engine import read
from trainshed.model.errors import NotAuthenticated
from trainshed.services.credential_cache import cache_of
from trainshed.services.platform import Platform

__all__ = [
    "EVERYTHING",
    "TOKEN_PREFIX",
    "Caller",
    "RunnerPlaces",
    "authenticate_token",
    "hash_secret",
    "identify",
]

TOKEN_PREFIX = "tsh_"
EVERYTHING = frozenset({"*"})
_LONGEST_TOKEN = 256


@dataclass(frozen=True)
class RunnerPlaces:
    """What of the platform's own buckets a job's runner may use: its code to read, its archive to read and write."""

    code_bucket: str
    code_prefix: str
    archive_bucket: str
    archive_prefix: str


@dataclass(frozen=True)
class Caller:
    """Who asks for something, in which workspace, and how far the credential in use reaches."""

    user_id: str
    user_name: str
    is_admin: bool
    workspace_id: str
    # viewer, developer or manager; an administrator is a manager everywhere.
    role: str
    scopes: frozenset[str] = EVERYTHING
    # Set when a job acts with its own credentials.
    job_id: str = ""
    # Set when it is not the job's script, but the runner beside it.
    places: RunnerPlaces | None = None


def hash_secret(secret: str) -> str:
    """What is stored in place of a token. (They are random: a plain hash cannot be guessed backwards.)"""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def authenticate_token(platform: Platform, token: str) -> Caller:
    """The caller behind a token; an unknown, expired or revoked one is refused."""
    if not token.startswith(TOKEN_PREFIX) or len(token) > _LONGEST_TOKEN:
        raise _unknown()
    name = hash_secret(token)

    def load() -> tuple[Caller | None, float | None]:
        with read(platform.engine) as connection:
            row = db_tokens.token_by_hash(connection, name)
            if row is None:
                raise _unknown()
            if row.expires_at is not None and row.expires_at <= platform.clock():
                # Whoever has expired is told just that, whatever else has become of them.
                return None, row.expires_at
            scopes = frozenset(row.scopes)
            return identify(
                connection, row.user_id, row.workspace_id, scopes, row.job_id or ""
            ), row.expires_at

    caller, expires_at = cache_of(platform.engine).find("token", name, load)
    if caller is None or (expires_at is not None and expires_at <= platform.clock()):
        raise NotAuthenticated(
            "The token has expired.", hint="Sign in again, or make a new token.", code="token_expired"
        )
    return caller


def identify(
    connection: Connection, user_id: str, workspace_id: str, scopes: frozenset[str], job_id: str = ""
) -> Caller:
    """The caller that a valid credential stands for, with the rights the user has at this moment."""
    user = db_users.user_by_id(connection, user_id)
    workspace = db_workspaces.workspace_by_id(connection, workspace_id)
    if user is None or user.disabled_at is not None or workspace is None or workspace.deleted_at is not None:
        raise _unknown()
    role = "manager" if user.is_admin else db_workspaces.role_of(connection, workspace_id, user_id)
    if not role:
        raise NotAuthenticated(
            "The user of this credential is no longer a member of the workspace.",
            hint="Ask a manager of the workspace.",
            code="not_a_member",
        )
    if job_id:
        job = db_jobs.job_by_id(connection, job_id)
        if job is None or job.phase.is_terminal or job.deleted_at is not None:
            raise NotAuthenticated(
                "The job of this credential has ended.", hint="Use credentials of your own.", code="job_ended"
            )
        # A job has its owner's rights on data, never more than a developer's.
        role = "developer" if role == "manager" else role
    return Caller(user.id, user.name, user.is_admin and not job_id, workspace.id, role, scopes, job_id)


def _unknown() -> NotAuthenticated:
    return NotAuthenticated(
        "The credential is not known.",
        hint="Sign in with `trainshed login`, or check TRAINSHED_TOKEN.",
        code="unknown_credential",
    )
