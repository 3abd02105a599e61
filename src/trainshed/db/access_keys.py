"""Access-key pairs in the database: the secret half is encrypted."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select

from trainshed.db import tables
from trainshed.db.engine import is_text
from trainshed.db.row import from_row, to_values

__all__ = [
    "AccessKeyRow",
    "access_key",
    "access_keys_of_job",
    "access_keys_of_user",
    "delete_access_key",
    "delete_access_keys_of_job",
    "delete_access_keys_of_user",
    "insert_access_key",
]

# Built once: building a statement takes longer than to run it.
_BY_KEY = select(tables.access_keys).where(tables.access_keys.c.access_key == bindparam("wanted"))
_DELETE_OF_JOB = delete(tables.access_keys).where(tables.access_keys.c.job_id == bindparam("job"))
_INSERT = insert(tables.access_keys)


@dataclass(frozen=True)
class AccessKeyRow:
    """A key pair for the object store: whose it is and in which workspace it acts."""

    access_key: str
    sealed_secret: bytes
    user_id: str
    workspace_id: str
    name: str
    created_at: float
    job_id: str | None = None


def insert_access_key(connection: Connection, row: AccessKeyRow) -> None:
    """Store a new pair."""
    connection.execute(_INSERT, to_values(row))


def access_key(connection: Connection, key: str) -> AccessKeyRow | None:
    """The pair with that access key."""
    if not is_text(key):
        return None
    row = connection.execute(_BY_KEY, {"wanted": key}).first()
    return None if row is None else from_row(AccessKeyRow, row)


def access_keys_of_user(connection: Connection, user_id: str, workspace_id: str) -> list[AccessKeyRow]:
    """A user's pairs in a workspace, oldest first; not those of jobs."""
    keys = tables.access_keys
    query = (
        select(keys)
        .where(keys.c.user_id == user_id, keys.c.workspace_id == workspace_id, keys.c.job_id.is_(None))
        .order_by(keys.c.created_at, keys.c.access_key)
    )
    return [from_row(AccessKeyRow, row) for row in connection.execute(query)]


def access_keys_of_job(connection: Connection, job_id: str) -> list[AccessKeyRow]:
    """The pairs that a job was given."""
    keys = tables.access_keys
    return [
        from_row(AccessKeyRow, row) for row in connection.execute(select(keys).where(keys.c.job_id == job_id))
    ]


def delete_access_key(connection: Connection, key: str) -> bool:
    """Make a pair unusable; False when there was none."""
    keys = tables.access_keys
    return connection.execute(delete(keys).where(keys.c.access_key == key)).rowcount > 0


def delete_access_keys_of_job(connection: Connection, job_id: str) -> None:
    """Make a job's pairs unusable."""
    connection.execute(_DELETE_OF_JOB, {"job": job_id})


def delete_access_keys_of_user(connection: Connection, user_id: str, workspace_id: str | None = None) -> None:
    """Make a user's pairs unusable, all of them or those of one workspace."""
    keys = tables.access_keys
    query = delete(keys).where(keys.c.user_id == user_id, keys.c.job_id.is_(None))
    if workspace_id is not None:
        query = query.where(keys.c.workspace_id == workspace_id)
    connection.execute(query)
