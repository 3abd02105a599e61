"""Which blobs are still needed, and the list of those whose files may go."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

__all__ = ["count_uses", "forget_garbage", "is_used", "pending_garbage", "release", "unknown_blobs"]

_USES = " UNION ALL ".join(
    f"SELECT 1 FROM {table} WHERE blob = ?1 AND blob != ''" for table in ("objects", "versions", "parts")
)


def is_used(connection: sqlite3.Connection, blob: str) -> bool:
    """Whether an object, an older version or a part of an upload needs the blob."""
    return connection.execute(f"{_USES} LIMIT 1", (blob,)).fetchone() is not None


def count_uses(connection: sqlite3.Connection, blob: str) -> int:
    """How many objects, older versions and parts share the blob."""
    return len(connection.execute(_USES, (blob,)).fetchall())


def release(connection: sqlite3.Connection, blobs: Iterable[str]) -> list[str]:
    """Write down the blobs among these that no row names any more: their files may go after the commit."""
    free = [blob for blob in set(blobs) if blob and not is_used(connection, blob)]
    for blob in free:
        connection.execute("INSERT OR IGNORE INTO garbage (blob) VALUES (?)", (blob,))
        connection.execute("DELETE FROM pieces WHERE blob = ?", (blob,))
    return free


def pending_garbage(connection: sqlite3.Connection, limit: int) -> list[str]:
    """Blobs whose files may be removed, or were removed without that being written down."""
    return [row[0] for row in connection.execute("SELECT blob FROM garbage LIMIT ?", (limit,))]


def forget_garbage(connection: sqlite3.Connection, blobs: Iterable[str]) -> None:
    """Strike blobs whose files are gone."""
    connection.executemany("DELETE FROM garbage WHERE blob = ?", ((blob,) for blob in blobs))


def unknown_blobs(connection: sqlite3.Connection, blobs: Iterable[str]) -> Iterator[str]:
    """The blobs among these that no row names."""
    return (blob for blob in blobs if not is_used(connection, blob))
