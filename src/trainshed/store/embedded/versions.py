"""Versions that are no longer the present one, and the markers of objects that were removed.

The present version of a key is its row in `objects`. What it was before lies in `versions`, in the order of
`sequence`. A key without a row in `objects` is removed: then the newest row in `versions`, if there is one, is
a marker.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from typing import Any

from trainshed.model.errors import NotFound
from trainshed.store.object_store import Removal
from trainshed.store.rules import no_such_version

__all__ = ["MARKER", "find_version", "hide", "make_way", "new_id", "remove_version", "stored_id"]

MARKER = "marker"
# How clients call the version that was written while no versions were kept.
NULL = "null"
_COLUMNS = "bucket_id, key, blob, size, md5, sha256, content_type, metadata, modified_at, kind, version_id, attributes"
_OBJECT = "key, blob, size, md5, sha256, content_type, metadata, modified_at, kind, version_id, attributes"


def stored_id(version_id: str) -> str:
    """The name of a version in the index; what clients call `null` has none."""
    return "" if version_id == NULL else version_id


def new_id(versioning: str) -> str:
    """The name of the next version."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}" if versioning == "Enabled" else ""


def find_version(connection: sqlite3.Connection, number: int, key: bytes, version_id: str) -> tuple[Any, ...]:
    """The columns of an older version."""
    found: tuple[Any, ...] | None = connection.execute(
        f"SELECT {_OBJECT} FROM versions WHERE bucket_id = ? AND key = ? AND version_id = ?",
        (number, key, stored_id(version_id)),
    ).fetchone()
    if found is None:
        raise no_such_version(key.decode(), version_id)
    if found[8] == MARKER:
        raise NotFound(
            f"This version says that '{key.decode()}' was removed.",
            hint="Ask for an older version.",
            code="is_delete_marker",
        )
    return found


def make_way(connection: sqlite3.Connection, number: int, key: bytes, versioning: str) -> list[str]:
    """Put the present version behind the one to come; returns the blobs of those that are gone for good."""
    gone = []
    if versioning != "Enabled":
        # The one to come has no name, like the one that was written while no versions were kept.
        for table in ("objects", "versions"):
            gone += connection.execute(
                f"DELETE FROM {table} WHERE bucket_id = ? AND key = ? AND version_id = '' RETURNING blob",
                (number, key),
            ).fetchall()
    connection.execute(
        f"INSERT INTO versions (sequence, {_COLUMNS}) SELECT ?, {_COLUMNS} FROM objects"
        " WHERE bucket_id = ? AND key = ?",
        (_next_sequence(connection, number, key), number, key),
    )
    connection.execute("DELETE FROM objects WHERE bucket_id = ? AND key = ?", (number, key))
    return [row[0] for row in gone]


def hide(
    connection: sqlite3.Connection, number: int, key: bytes, versioning: str, now: float
) -> tuple[Removal, list[str]]:
    """Mark a key as removed; also returns the blobs of versions that are gone for good."""
    existed = connection.execute(
        "SELECT 1 FROM objects WHERE bucket_id = ? AND key = ?", (number, key)
    ).fetchone()
    gone = make_way(connection, number, key, versioning)
    version_id = new_id(versioning)
    connection.execute(
        f"INSERT INTO versions (sequence, {_COLUMNS}) VALUES (?, ?, ?, '', 0, '', '', '', '', ?, ?, ?, '')",
        (_next_sequence(connection, number, key), number, key, now, MARKER, version_id),
    )
    return Removal(existed is not None, version_id or NULL, True), gone


def remove_version(
    connection: sqlite3.Connection, number: int, key: bytes, version_id: str
) -> tuple[Removal, list[str]]:
    """Remove a version for good; the newest one that is left becomes the present one."""
    where = "bucket_id = ? AND key = ? AND version_id = ?"
    chosen = (number, key, stored_id(version_id))
    gone = connection.execute(f"DELETE FROM objects WHERE {where} RETURNING blob, kind", chosen).fetchall()
    if not gone:
        gone = connection.execute(
            f"DELETE FROM versions WHERE {where} RETURNING blob, kind", chosen
        ).fetchall()
    if not connection.execute(
        "SELECT 1 FROM objects WHERE bucket_id = ? AND key = ?", (number, key)
    ).fetchone():
        _promote(connection, number, key)
    is_marker = any(kind == MARKER for _, kind in gone)
    return Removal(bool(gone), version_id, is_marker), [blob for blob, _ in gone]


def _promote(connection: sqlite3.Connection, number: int, key: bytes) -> None:
    newest = connection.execute(
        "SELECT sequence, kind FROM versions WHERE bucket_id = ? AND key = ? ORDER BY sequence DESC LIMIT 1",
        (number, key),
    ).fetchone()
    if newest is None or newest[1] == MARKER:
        return
    row = (number, key, newest[0])
    connection.execute(
        f"INSERT INTO objects ({_COLUMNS}) SELECT {_COLUMNS} FROM versions"
        " WHERE bucket_id = ? AND key = ? AND sequence = ?",
        row,
    )
    connection.execute("DELETE FROM versions WHERE bucket_id = ? AND key = ? AND sequence = ?", row)


def _next_sequence(connection: sqlite3.Connection, number: int, key: bytes) -> int:
    found = connection.execute(
        "SELECT max(sequence) FROM versions WHERE bucket_id = ? AND key = ?", (number, key)
    ).fetchone()
    return int(found[0] or 0) + 1
