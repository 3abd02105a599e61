"""How much a workspace may keep, and how much it keeps."""

from __future__ import annotations

import sqlite3

from trainshed.model.errors import TooLarge
from trainshed.store.records import Usage

__all__ = ["check_quota", "read_quota", "read_usage", "recount", "write_quota"]


def write_quota(
    connection: sqlite3.Connection, workspace_id: str, size: int | None, objects: int | None
) -> None:
    """Limit a workspace (empty: all that have no limit of their own); 0 is no limit, None is not its own."""
    connection.execute("DELETE FROM quotas WHERE workspace_id = ?", (workspace_id,))
    if size is not None and objects is not None and (workspace_id or size or objects):
        connection.execute("INSERT INTO quotas VALUES (?, ?, ?)", (workspace_id, size, objects))


def read_quota(connection: sqlite3.Connection, workspace_id: str) -> tuple[int, int]:
    """The bytes and objects that a workspace may keep; 0 is no limit."""
    found = connection.execute(
        "SELECT bytes, objects FROM quotas WHERE workspace_id IN (?, '') ORDER BY workspace_id DESC LIMIT 1",
        (workspace_id,),
    ).fetchone()
    return (found[0], found[1]) if found else (0, 0)


def read_usage(connection: sqlite3.Connection, workspace_id: str) -> Usage:
    """What a workspace keeps, older versions and the parts of unfinished uploads included."""
    size, objects = connection.execute(
        "SELECT coalesce(sum(bytes), 0), coalesce(sum(objects), 0) FROM usage"
        " WHERE bucket_id IN (SELECT id FROM buckets WHERE workspace_id = ?)",
        (workspace_id,),
    ).fetchone()
    return Usage(size, objects, *read_quota(connection, workspace_id))


def check_quota(connection: sqlite3.Connection, workspace_id: str) -> None:
    """Refuse the write that was just made if the workspace keeps too much with it."""
    # The platform's own buckets belong to no workspace.
    if not workspace_id or read_quota(connection, workspace_id) == (0, 0):
        return
    usage = read_usage(connection, workspace_id)
    for name, used, limit in (
        ("bytes", usage.bytes, usage.max_bytes),
        ("objects", usage.objects, usage.max_objects),
    ):
        if limit and used > limit:
            raise TooLarge(
                f"The workspace may keep {limit} {name} and would have {used}; nothing was stored.",
                hint="Remove what is no longer needed (trainshed obs rm -r), or ask an administrator for a larger quota.",
                code="quota_exceeded",
                where=f"quota: {name}",
            )


def recount(connection: sqlite3.Connection) -> None:
    """Count again what every bucket holds."""
    connection.execute("DELETE FROM usage")
    connection.execute(
        "INSERT INTO usage (bucket_id, objects, bytes)"
        " SELECT id,"
        " (SELECT count(*) FROM objects WHERE bucket_id = b.id)"
        " + (SELECT count(*) FROM versions WHERE bucket_id = b.id),"
        " (SELECT coalesce(sum(size), 0) FROM objects WHERE bucket_id = b.id)"
        " + (SELECT coalesce(sum(size), 0) FROM versions WHERE bucket_id = b.id)"
        " + (SELECT coalesce(sum(size), 0) FROM parts WHERE upload_id IN"
        " (SELECT id FROM uploads WHERE bucket_id = b.id))"
        " FROM buckets AS b"
    )
