"""The index: what the rows of objects say, and how they change. Every function takes a connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from trainshed.model.errors import InvalidInput
from trainshed.store.embedded import versions
from trainshed.store.embedded.bucket_rows import find_bucket
from trainshed.store.embedded.garbage import release
from trainshed.store.embedded.quotas import check_quota
from trainshed.store.object_store import Condition, Listing, ObjectInfo, Removal
from trainshed.store.rules import check_condition, no_such_key

__all__ = [
    "APPENDABLE",
    "COLUMNS",
    "ROW_MARKS",
    "Row",
    "check_present",
    "copy_prefix",
    "delete_object",
    "delete_page",
    "find_object",
    "folder_of",
    "format_mapping",
    "has_objects",
    "list_page",
    "parse_mapping",
    "put_object",
    "put_pieces",
    "read_row",
    "read_rows",
    "rename_prefix",
    "row_values",
    "successor",
]

COLUMNS = "key, blob, size, md5, sha256, content_type, metadata, modified_at, kind, version_id, attributes"
ROW_MARKS = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
APPENDABLE = "appendable"
_MAX_KEY_BYTES = 1024


@dataclass(frozen=True)
class Row:
    """An object's row, with the blob that holds its bytes (empty for an empty object)."""

    info: ObjectInfo
    blob: str
    sha256: str = ""


def read_row(bucket: str, values: tuple[Any, ...]) -> Row:
    key, blob, size, md5, sha256, content_type, metadata, modified_at, kind, version_id, attributes = values
    info = ObjectInfo(
        bucket=bucket,
        key=key.decode("utf-8"),
        size=size,
        etag=md5,
        modified_at=modified_at,
        content_type=content_type,
        metadata=parse_mapping(metadata),
        attributes=parse_mapping(attributes),
        version_id=version_id,
        is_appendable=kind == APPENDABLE,
    )
    return Row(info, blob, sha256)


def parse_mapping(text: str) -> dict[str, str]:
    """Metadata or attributes as they were stored."""
    mapping: dict[str, str] = json.loads(text) if text else {}
    return mapping


def format_mapping(mapping: Mapping[str, str]) -> str:
    """Metadata or attributes as they are stored; most objects have none."""
    return json.dumps(mapping, ensure_ascii=False) if mapping else ""


def successor(prefix: bytes) -> bytes:
    """The first key behind all keys that start with the prefix (UTF-8 has no byte 0xff)."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\xff"


# --- objects ---


def find_object(
    connection: sqlite3.Connection, bucket: str, key: str, version_id: str = "", number: int | None = None
) -> Row:
    """An object's row, or that of one of its versions. The bucket's number is looked up if it is not known."""
    if number is None:
        number, _ = find_bucket(connection, bucket)
    found = connection.execute(
        f"SELECT {COLUMNS} FROM objects WHERE bucket_id = ? AND key = ?", (number, key.encode())
    ).fetchone()
    row = read_row(bucket, found) if found else None
    if version_id and (row is None or row.info.version_id != versions.stored_id(version_id)):
        older = versions.find_version(connection, number, key.encode(), version_id)
        return read_row(bucket, older)
    if row is None:
        raise no_such_key(bucket, key)
    return row


def check_present(connection: sqlite3.Connection, bucket: str, key: str, condition: Condition) -> None:
    """Refuse to go on if the present object is not as the condition demands."""
    number, _ = find_bucket(connection, bucket)
    found = connection.execute(
        "SELECT md5 FROM objects WHERE bucket_id = ? AND key = ?", (number, key.encode())
    ).fetchone()
    check_condition(key, condition, found[0] if found else None)


def put_object(
    connection: sqlite3.Connection, row: Row, condition: Condition | None = None
) -> tuple[ObjectInfo, list[str]]:
    """Write an object's row in place of the one before; also returns the blobs that nothing needs any more."""
    info = row.info
    number, bucket = find_bucket(connection, info.bucket)
    key = info.key.encode()
    old = connection.execute(
        "SELECT blob, md5, size FROM objects WHERE bucket_id = ? AND key = ?", (number, key)
    ).fetchone()
    if condition is not None:
        check_condition(info.key, condition, old[1] if old else None)
    gone = [old[0]] if old else []
    if bucket.versioning:
        gone = versions.make_way(connection, number, key, bucket.versioning)
        info = replace(info, version_id=versions.new_id(bucket.versioning))
    connection.execute(
        f"INSERT OR REPLACE INTO objects (bucket_id, {COLUMNS}) VALUES {ROW_MARKS}",
        row_values(number, replace(row, info=info)),
    )
    if old is None or info.size > old[2] or bucket.versioning:
        check_quota(connection, bucket.workspace_id)
    return info, release(connection, gone)


def row_values(number: int, row: Row) -> tuple[Any, ...]:
    """What the table holds of an object, with the number of its bucket before it."""
    info = row.info
    return (
        number,
        info.key.encode(),
        row.blob,
        info.size,
        info.etag,
        row.sha256,
        info.content_type,
        format_mapping(info.metadata),
        info.modified_at,
        APPENDABLE if info.is_appendable else "",
        info.version_id,
        format_mapping(info.attributes),
    )


def put_pieces(connection: sqlite3.Connection, blob: str, pieces: Sequence[tuple[int, str]]) -> None:
    """Write down the sizes and MD5s of the pieces of a blob whose own MD5 nobody knows."""
    connection.executemany(
        "INSERT OR REPLACE INTO pieces (blob, number, size, md5) VALUES (?, ?, ?, ?)",
        ((blob, number, size, md5) for number, (size, md5) in enumerate(pieces, 1) if blob),
    )


def delete_object(
    connection: sqlite3.Connection, bucket: str, key: str, now: float
) -> tuple[Removal, list[str]]:
    """Remove an object's row or hide it behind a marker; also returns the blobs that nothing needs any more."""
    number, about = find_bucket(connection, bucket)
    if about.versioning:
        removal, gone = versions.hide(connection, number, key.encode(), about.versioning, now)
        return removal, release(connection, gone)
    rows = connection.execute(
        "DELETE FROM objects WHERE bucket_id = ? AND key = ? RETURNING blob", (number, key.encode())
    ).fetchall()
    return Removal(bool(rows)), release(connection, [row[0] for row in rows])


def delete_page(
    connection: sqlite3.Connection, bucket: str, prefix: str, limit: int, now: float
) -> tuple[int, list[str]]:
    """Remove the first objects below a prefix: how many, and the blobs that nothing needs any more."""
    number, about = find_bucket(connection, bucket)
    low = prefix.encode()
    keys = connection.execute(
        "SELECT key, blob FROM objects WHERE bucket_id = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?",
        (number, low, successor(low), limit),
    ).fetchall()
    if not keys:
        return 0, []
    if about.versioning:
        gone = [
            blob
            for key, _ in keys
            for blob in versions.hide(connection, number, key, about.versioning, now)[1]
        ]
        return len(keys), release(connection, gone)
    connection.execute(
        "DELETE FROM objects WHERE bucket_id = ? AND key >= ? AND key <= ?", (number, keys[0][0], keys[-1][0])
    )
    return len(keys), release(connection, [row[1] for row in keys])


def copy_prefix(
    connection: sqlite3.Connection, bucket: str, prefix: str, to_bucket: str, to_prefix: str, now: float
) -> tuple[int, list[str]]:
    """Give the blobs of all objects below a prefix to keys below another one."""
    number, _ = find_bucket(connection, bucket)
    target, about = find_bucket(connection, to_bucket)
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
    if about.versioning:
        rows = connection.execute(f"SELECT {COLUMNS} FROM objects WHERE {within}", source).fetchall()
        free = []
        for row in (read_row(to_bucket, values) for values in rows):
            to_key = to_prefix + row.info.key[len(prefix) :]
            info = replace(row.info, key=to_key, modified_at=now, is_appendable=False)
            free += put_object(connection, replace(row, info=info))[1]
        return len(rows), free
    replaced = connection.execute(
        "SELECT DISTINCT blob FROM objects WHERE bucket_id = :target"
        f" AND key IN (SELECT {new_key} FROM objects WHERE {within})",
        source,
    ).fetchall()
    copied = connection.execute(
        f"INSERT OR REPLACE INTO objects (bucket_id, {COLUMNS})"
        f" SELECT :target, {new_key}, blob, size, md5, sha256, content_type, metadata, :now, '', '', attributes"
        f" FROM objects WHERE {within}",
        source,
    ).rowcount
    check_quota(connection, about.workspace_id)
    return copied, release(connection, [row[0] for row in replaced])


def has_objects(connection: sqlite3.Connection, bucket: str, low: bytes, high: bytes) -> bool:
    """Whether there is an object within a range of keys."""
    number, _ = find_bucket(connection, bucket)
    return bool(
        connection.execute(
            "SELECT 1 FROM objects WHERE bucket_id = ? AND key >= ? AND key < ? LIMIT 1", (number, low, high)
        ).fetchall()
    )


def rename_prefix(
    connection: sqlite3.Connection, bucket: str, prefix: str, to_prefix: str, now: float
) -> tuple[int, list[str]]:
    """Move all objects below a prefix to another one, where nothing lies."""
    number, about = find_bucket(connection, bucket)
    low = prefix.encode()
    if about.versioning:
        count, free = copy_prefix(connection, bucket, prefix, bucket, to_prefix, now)
        return count, free + delete_page(connection, bucket, prefix, count, now)[1]
    keys = connection.execute(
        "SELECT key FROM objects WHERE bucket_id = ? AND key >= ? AND key < ?", (number, low, successor(low))
    ).fetchall()
    pairs = [(to_prefix.encode() + key[len(low) :], number, key) for (key,) in keys]
    if any(len(new) > _MAX_KEY_BYTES for new, _, _ in pairs):
        raise InvalidInput(
            "A key would be longer than 1024 bytes.", hint="Choose a shorter name.", code="invalid_key"
        )
    connection.executemany("UPDATE objects SET key = ? WHERE bucket_id = ? AND key = ?", pairs)
    return len(pairs), []


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
        folder = folder_of(after.encode(), low, cut)
        if folder == after.encode():
            start = successor(folder)
    last = b""
    while start < high:
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM objects WHERE bucket_id = ? AND key >= ? AND key < ? ORDER BY key",
            (number, start, high),
        )
        start = high
        # Closed at once: a scan that stays open would hold back the cleaning of the write-ahead log.
        with closing(rows):
            for values in rows:
                if len(objects) + len(folders) >= limit:
                    return Listing(tuple(objects), tuple(folders), last.decode() if limit > 0 else after)
                folder = folder_of(values[0], low, cut) if cut else b""
                if folder:
                    folders.append(folder.decode())
                    last, start = folder, successor(folder)
                    break
                objects.append(read_row(bucket, values).info)
                last = values[0]
    return Listing(tuple(objects), tuple(folders))


def read_rows(connection: sqlite3.Connection, bucket: str, low: bytes, high: bytes, limit: int) -> list[Row]:
    """The first objects from a key on and before another one."""
    number, _ = find_bucket(connection, bucket)
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM objects WHERE bucket_id = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?",
        (number, low, high, limit),
    )
    return [read_row(bucket, values) for values in rows.fetchall()]


def folder_of(key: bytes, prefix: bytes, delimiter: bytes) -> bytes:
    """The folder that a key rolls up to, or nothing when it lies directly below the prefix."""
    if not key.startswith(prefix):
        return b""
    at = key.find(delimiter, len(prefix))
    return key[: at + len(delimiter)] if at >= 0 else b""
