"""The rows of buckets: their names, whose they are, and the documents that are kept with them."""

from __future__ import annotations

import sqlite3

from trainshed.model.errors import Conflict, NotFound
from trainshed.store.object_store import Bucket

__all__ = [
    "delete_bucket",
    "find_bucket",
    "insert_bucket",
    "list_buckets",
    "read_document",
    "set_versioning",
    "write_document",
]


def find_bucket(connection: sqlite3.Connection, name: str) -> tuple[int, Bucket]:
    """The bucket and its number."""
    found = connection.execute(
        "SELECT id, workspace_id, created_at, versioning FROM buckets WHERE name = ?", (name,)
    ).fetchone()
    if found is None:
        raise NotFound(
            f"There is no bucket '{name}'.",
            hint=f"Make it with: trainshed obs mb {name}",
            code="no_such_bucket",
        )
    return found[0], Bucket(name, *found[1:])


def list_buckets(connection: sqlite3.Connection, workspace_id: str | None) -> list[Bucket]:
    """The buckets of a workspace (or of all) by name, without the platform's own."""
    rows = connection.execute(
        "SELECT name, workspace_id, created_at, versioning FROM buckets"
        " WHERE name NOT LIKE '.%' AND (?1 IS NULL OR workspace_id = ?1) ORDER BY name",
        (workspace_id,),
    )
    return [Bucket(*row) for row in rows]


def insert_bucket(connection: sqlite3.Connection, bucket: Bucket, *, may_exist: bool) -> Bucket:
    """Add a bucket; one that exists is an error, or is returned as it is."""
    try:
        connection.execute(
            "INSERT INTO buckets (name, workspace_id, created_at) VALUES (?, ?, ?)",
            (bucket.name, bucket.workspace_id, bucket.created_at),
        )
    except sqlite3.IntegrityError:
        if may_exist:
            return find_bucket(connection, bucket.name)[1]
        raise Conflict(
            f"The bucket '{bucket.name}' exists already.",
            hint="Bucket names are shared by all workspaces: choose another one.",
            code="bucket_exists",
        ) from None
    return bucket


def delete_bucket(connection: sqlite3.Connection, name: str) -> None:
    """Remove a bucket that holds nothing."""
    number, _ = find_bucket(connection, name)
    for table, what, hint in (
        ("objects", "is not empty", f"Remove its objects first: trainshed obs rm -r obs://{name}/"),
        ("versions", "still keeps older versions", "Remove them with an S3 client, or by a lifecycle rule."),
    ):
        if connection.execute(f"SELECT 1 FROM {table} WHERE bucket_id = ? LIMIT 1", (number,)).fetchone():
            raise Conflict(f"The bucket '{name}' {what}.", hint=hint, code="bucket_not_empty")
    connection.execute("DELETE FROM buckets WHERE id = ?", (number,))


def set_versioning(connection: sqlite3.Connection, name: str, versioning: str) -> None:
    """Turn the keeping of versions on or off."""
    number, _ = find_bucket(connection, name)
    connection.execute("UPDATE buckets SET versioning = ? WHERE id = ?", (versioning, number))


def read_document(connection: sqlite3.Connection, bucket: str, name: str) -> str:
    """A document that is kept with a bucket, or nothing."""
    number, _ = find_bucket(connection, bucket)
    found = connection.execute(
        "SELECT document FROM documents WHERE bucket_id = ? AND name = ?", (number, name)
    ).fetchone()
    return found[0] if found else ""


def write_document(connection: sqlite3.Connection, bucket: str, name: str, document: str) -> None:
    """Keep a document with a bucket in place of the one of that name; an empty one removes it."""
    number, _ = find_bucket(connection, bucket)
    connection.execute("DELETE FROM documents WHERE bucket_id = ? AND name = ?", (number, name))
    if document:
        connection.execute("INSERT INTO documents VALUES (?, ?, ?)", (number, name, document))
