"""API tokens in the database: only their hashes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select

from trainshed.db import tables
from trainshed.db.row import from_row, to_values

__all__ = [
    "TokenRow",
    "delete_expired_tokens",
    "delete_token",
    "delete_tokens_of_job",
    "delete_tokens_of_user",
    "insert_token",
    "token_by_hash",
    "tokens_of_user",
]

# Built once: building a statement takes longer than to run it.
_BY_HASH = select(tables.tokens).where(tables.tokens.c.hash == bindparam("wanted"))
_DELETE_OF_JOB = delete(tables.tokens).where(tables.tokens.c.job_id == bindparam("job"))
_INSERT = insert(tables.tokens)


@dataclass(frozen=True)
class TokenRow:
    """A token: whose it is, in which workspace it acts and what it may do."""

    id: str
    hash: str
    user_id: str
    workspace_id: str
    name: str
    scopes: list[str]
    created_at: float
    expires_at: float | None = None
    # Set for the token of a job: it dies with the job.
    job_id: str | None = None


def insert_token(connection: Connection, row: TokenRow) -> None:
    """Store a new token."""
    connection.execute(_INSERT, to_values(row))


def token_by_hash(connection: Connection, digest: str) -> TokenRow | None:
    """The token with that hash."""
    row = connection.execute(_BY_HASH, {"wanted": digest}).first()
    return None if row is None else from_row(TokenRow, row)


def tokens_of_user(connection: Connection, user_id: str, workspace_id: str) -> list[TokenRow]:
    """A user's tokens in a workspace, newest first; not those of jobs."""
    tokens = tables.tokens
    query = (
        select(tokens)
        .where(
            tokens.c.user_id == user_id,
            tokens.c.workspace_id == workspace_id,
            tokens.c.job_id.is_(None),
        )
        .order_by(tokens.c.created_at.desc(), tokens.c.id)
    )
    return [from_row(TokenRow, row) for row in connection.execute(query)]


def delete_token(connection: Connection, token_id: str) -> bool:
    """Make a token unusable; False when there was none."""
    return connection.execute(delete(tables.tokens).where(tables.tokens.c.id == token_id)).rowcount > 0


def delete_expired_tokens(connection: Connection, expired_before: float) -> None:
    """Remove tokens whose time passed before a moment."""
    connection.execute(delete(tables.tokens).where(tables.tokens.c.expires_at < expired_before))


def delete_tokens_of_job(connection: Connection, job_id: str) -> None:
    """Make a job's tokens unusable."""
    connection.execute(_DELETE_OF_JOB, {"job": job_id})


def delete_tokens_of_user(connection: Connection, user_id: str, workspace_id: str | None = None) -> None:
    """Make a user's tokens unusable, all of them or those of one workspace."""
    tokens = tables.tokens
    query = delete(tokens).where(tokens.c.user_id == user_id, tokens.c.job_id.is_(None))
    if workspace_id is not None:
        query = query.where(tokens.c.workspace_id == workspace_id)
    connection.execute(query)
