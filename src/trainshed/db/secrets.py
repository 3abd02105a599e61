"""The secrets of jobs in the database, encrypted; what is inside is not known here."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, insert, select

from trainshed.db import tables

__all__ = ["delete_secrets", "get_secrets", "put_secrets"]

# Built once: building a statement takes longer than to run it.
_OF_JOB = select(tables.job_secrets.c.sealed).where(tables.job_secrets.c.job_id == bindparam("job"))


def put_secrets(connection: Connection, job_id: str, sealed: bytes) -> None:
    """Store a job's sealed secrets in place of earlier ones."""
    delete_secrets(connection, job_id)
    connection.execute(insert(tables.job_secrets).values(job_id=job_id, sealed=sealed))


def get_secrets(connection: Connection, job_id: str) -> bytes | None:
    """A job's sealed secrets."""
    sealed: bytes | None = connection.execute(_OF_JOB, {"job": job_id}).scalar()
    return sealed


def delete_secrets(connection: Connection, job_id: str) -> None:
    """Forget a job's secrets."""
    connection.execute(delete(tables.job_secrets).where(tables.job_secrets.c.job_id == job_id))
