"""The index: what the rows of buckets and objects say, and how they change. Every function takes a connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.store.object_store import Bucket, Listing, ObjectInfo

__all__ = [
    "Row",
    "copy_object",
    "copy_prefix",
    "delete_bucket",
    "delete_object",
    "delete_page",
    "find_bucket",
    "find_object",
    "forget_garbage",
    "insert_bucket",
    "list_buckets",
    "list_page",
    "pending_garbage",
    "put_object",
    "unknown_blobs",
]

_COLUMNS = "key, blob, size, md5, sha256, content_type, metadata, modified_at"
_MAX_KEY_BYTES = 1024


@dataclass(frozen=True)
class Row:
    """An object's row, with the blob that holds its bytes (empty for an empty object)."""

    info: ObjectInfo
    blob: str
    sha256: str = ""


def _row(bucket: str, values: tuple[bytes, str, int, str, str, str, str, float]) -> Row:
    key, blob, size, md5, sha256, content_type, metadata, modified_at = values
    info = ObjectInfo(
        bucket=bucket,
        key=key.decode("utf-8"),
        size=size,
        etag=md5,
        modified_at=modified_at,
        content_type=content_type,
        metadata=json.loads(metadata) if metadata else {},
    )
    return Row(info, blob, sha256)


def successor(prefix: bytes) -> bytes:
    """The first key behind all keys that start with the prefix (UTF-8 has no byte 0xff)."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\xff"


# --- buckets ---


def find_bucket(connection: sqlite3.Connection, name: str) -> tuple[int, Bucket]:
    """The bucket and its number."""
    found = connection.execute(
        "SELECT id, workspace_id, created_at FROM buckets WHERE name = ?", (name,)
    ).fetchone()
    if found is None:
        raise NotFound(
            f"There is no bucket '{name}'.",
            hint=f"Make it with: trainshed obs mb {name}",
            code="no_such_bucket",
        )
    return found[0], Bucket(name, found[1], found[2])


def list_buckets(connection: sqlite3.Connection, workspace_id: str | None) -> list[Bucket]:
    """The buckets of a workspace (or of all) by name, without the platform's own."""
    rows = connection.execute(
        "SELECT name, workspace_id, created_at FROM buckets"
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
    if connection.execute("SELECT 1 FROM objects WHERE bucket_id = ? LIMIT 1", (number,)).fetchone():
        raise Conflict(
            f"The bucket '{name}' is not empty.",
            hint=f"Remove its objects first: trainshed obs rm -r obs://{name}/",
            code="bucket_not_empty",
        )
    connection.execute("DELETE FROM buckets WHERE id = ?", (number,))


# --- objects ---


def find_object(connection: sqlite3.Connection, bucket: str, key: str) -> Row:
    """An object's row."""
    number, _ = find_bucket(connection, bucket)
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM objects WHERE bucket_id = ? AND key = ?", (number, key.encode())
    ).fetchone()
    if found is None:
        raise NotFound(
            f"There is no object '{key}' in the bucket '{bucket}'.",
            hint=f"See what is there: trainshed obs ls obs://{bucket}/",
            code="no_such_key",
        )
    return _row(bucket, found)


def put_object(connection: sqlite3.Connection, row: Row) -> list[str]:
    """Write an object's row in place of the one before; returns the blobs that nothing needs any more."""
    info = row.info
    number, _ = find_bucket(connection, info.bucket)
    key = info.key.encode()
    old = connection.execute(
        "SELECT blob FROM objects WHERE bucket_id = ? AND key = ?", (number, key)
    ).fetchone()
    connection.execute(
        f"INSERT OR REPLACE INTO objects (bucket_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            key,
            row.blob,
            info.size,
            info.etag,
            row.sha256,
            info.content_type,
            json.dumps(info.metadata, ensure_ascii=False) if info.metadata else "",
            info.modified_at,
        ),
    )
    return _release(connection, [old[0]] if old else [])


def delete_object(connection: sqlite3.Connection, bucket: str, key: str) -> tuple[bool, list[str]]:
    """Remove an object's row: whether there was one, and the blobs that nothing needs any more."""
    number, _ = find_bucket(connection, bucket)
    gone = connection.execute(
        "DELETE FROM objects WHERE bucket_id = ? AND key = ? RETURNING blob", (number, key.encode())
    ).fetchall()
    return bool(gone), _release(connection, [row[0] for row in gone])


def delete_page(
    connection: sqlite3.Connection, bucket: str, prefix: str, limit: int
) -> tuple[int, list[str]]:
    """Remove the first objects below a prefix: how many, and the blobs that nothing needs any more."""
    number, _ = find_bucket(connection, bucket)
    low = prefix.encode()
    keys = connection.execute(
        "SELECT key, blob FROM objects WHERE bucket_id = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?",
        (number, low, successor(low), limit),
    ).fetchall()
    if not keys:
        return 0, []
    connection.execute(
        "DELETE FROM objects WHERE bucket_id = ? AND key >= ? AND key <= ?", (number, keys[0][0], keys[-1][0])
    )
    return len(keys), _release(connection, [row[1] for row in keys])


def copy_object(
    connection: sqlite3.Connection, bucket: str, key: str, to_bucket: str, to_key: str, now: float
) -> tuple[ObjectInfo, list[str]]:
    """Give an object's blob to a second key."""
    row = find_object(connection, bucket, key)
    info = ObjectInfo(
        bucket=to_bucket,
        key=to_key,
        size=row.info.size,
        etag=row.info.etag,
        modified_at=now,
        content_type=row.info.content_type,
        metadata=row.info.metadata,
    )
    return info, put_object(connection, Row(info, row.blob, row.sha256))


def copy_prefix(
    connection: sqlite3.Connection, bucket: str, prefix: str, to_bucket: str, to_prefix: str, now: float
) -> tuple[int, list[str]]:
    """Give the blobs of all objects below a prefix to keys below another one."""
    number, _ = find_bucket(connection, bucket)
    target, _ = find_bucket(connection, to_bucket)
    low, to_low = prefix.encode(), to_prefix.encode()
    source = {
        "source": number,
        "target": target,
        "low": low,
        "high": successor(low),
        "to": to_low,
        "cut": len(low) + 1,
        "now": now,
    }
    within = "bucket_id = :source AND key >= :low AND key < :high"
    # Both sides are UTF-8 without NUL, so that the way over text loses nothing.
    new_key = "CAST(CAST(:to AS TEXT) || CAST(substr(key, :cut) AS TEXT) AS BLOB)"
    longest, shortest = connection.execute(
        f"SELECT max(length(key)), min(length(key)) FROM objects WHERE {within}", source
    ).fetchone()
    if longest is None:
        return 0, []
    change = len(to_low) - len(low)
    if longest + change > _MAX_KEY_BYTES or shortest + change < 1:
        raise InvalidInput(
            "The copy would have a key that is empty or longer than 1024 bytes.",
            hint="Choose another target prefix.",
            code="invalid_key",
        )
    replaced = connection.execute(
        "SELECT DISTINCT blob FROM objects WHERE bucket_id = :target"
        f" AND key IN (SELECT {new_key} FROM objects WHERE {within})",
        source,
    ).fetchall()
    copied = connection.execute(
        f"INSERT OR REPLACE INTO objects (bucket_id, {_COLUMNS})"
        f" SELECT :target, {new_key}, blob, size, md5, sha256, content_type, metadata, :now"
        f" FROM objects WHERE {within}",
        source,
    ).rowcount
    return copied, _release(connection, [row[0] for row in replaced])


# --- listing ---


def list_page(
    connection: sqlite3.Connection, bucket: str, prefix: str, delimiter: str, after: str, limit: int
) -> Listing:
    """One page of keys. With a delimiter, each folder costs one row, however much lies in it."""
    number, _ = find_bucket(connection, bucket)
    objects: list[ObjectInfo] = []
    folders: list[str] = []
    low, cut = prefix.encode(), delimiter.encode()
    high = successor(low)
    start = max(low, after.encode() + b"\0") if after else low
    if after and cut:
        folder = _folder_of(after.encode(), low, cut)
        if folder == after.encode():
            start = successor(folder)
    last = b""
    while start < high:
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM objects WHERE bucket_id = ? AND key >= ? AND key < ? ORDER BY key",
            (number, start, high),
        )
        start = high
        # Closed at once: a scan that stays open would hold back the cleaning of the write-ahead log.
        with closing(rows):
            for values in rows:
                if len(objects) + len(folders) >= limit:
                    return Listing(tuple(objects), tuple(folders), last.decode() if limit > 0 else after)
                folder = _folder_of(values[0], low, cut) if cut else b""
                if folder:
                    folders.append(folder.decode())
                    last, start = folder, successor(folder)
                    break
                objects.append(_row(bucket, values).info)
                last = values[0]
    return Listing(tuple(objects), tuple(folders))


def _folder_of(key: bytes, prefix: bytes, delimiter: bytes) -> bytes:
    """The folder that a key rolls up to, or nothing when it lies directly below the prefix."""
    if not key.startswith(prefix):
        return b""
    at = key.find(delimiter, len(prefix))
    return key[: at + len(delimiter)] if at >= 0 else b""


# --- garbage ---


def _release(connection: sqlite3.Connection, blobs: Iterable[str]) -> list[str]:
    """Write down the blobs among these that no row names any more: their files may go after the commit."""
    free = [
        blob
        for blob in set(blobs)
        if blob and not connection.execute("SELECT 1 FROM objects WHERE blob = ? LIMIT 1", (blob,)).fetchone()
    ]
    connection.executemany("INSERT OR IGNORE INTO garbage (blob) VALUES (?)", ((blob,) for blob in free))
    return free


def pending_garbage(connection: sqlite3.Connection, limit: int) -> list[str]:
    """Blobs whose files may be removed, or were removed without that being written down."""
    return [row[0] for row in connection.execute("SELECT blob FROM garbage LIMIT ?", (limit,))]


def forget_garbage(connection: sqlite3.Connection, blobs: Iterable[str]) -> None:
    """Strike blobs whose files are gone."""
    connection.executemany("DELETE FROM garbage WHERE blob = ?", ((blob,) for blob in blobs))


def unknown_blobs(connection: sqlite3.Connection, blobs: Iterable[str]) -> Iterator[str]:
    """The blobs among these that no row names."""
    for blob in blobs:
        if not connection.execute("SELECT 1 FROM objects WHERE blob = ? LIMIT 1", (blob,)).fetchone():
            yield blob
