"""The rows of multipart uploads: what was begun, which parts are there, and who may write where."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from trainshed.model.errors import Conflict
from trainshed.store.embedded.bucket_rows import find_bucket
from trainshed.store.embedded.garbage import release
from trainshed.store.embedded.index import folder_of, format_mapping, parse_mapping, successor
from trainshed.store.embedded.quotas import check_quota
from trainshed.store.object_store import MultipartUpload, Part, PartListing, UploadListing
from trainshed.store.rules import no_such_upload, wrong_part

__all__ = [
    "StoredPart",
    "changed_since",
    "close_upload",
    "drop_bucket_uploads",
    "drop_upload",
    "drop_uploads",
    "find_upload",
    "give_back_slot",
    "insert_upload",
    "list_parts",
    "list_uploads",
    "new_upload_id",
    "put_part",
    "read_parts",
    "stale_uploads",
    "take_slot",
    "unknown_uploads",
]

_UPLOAD = "key, id, created_at, content_type, metadata, attributes"
_PART = "number, md5, size, modified_at, attributes, blob, is_in_slot"


@dataclass(frozen=True)
class StoredPart:
    """A part and where its bytes are: in a slot of the upload's file, or in a blob (none when it is empty)."""

    part: Part
    blob: str
    is_in_slot: bool


def new_upload_id() -> str:
    """A random name; those of earlier uploads come first in order."""
    return f"{time.time_ns():016x}{secrets.token_hex(12)}"


def insert_upload(connection: sqlite3.Connection, upload: MultipartUpload) -> MultipartUpload:
    """Begin an upload."""
    number, _ = find_bucket(connection, upload.bucket)
    connection.execute(
        f"INSERT INTO uploads (bucket_id, {_UPLOAD}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            upload.key.encode(),
            upload.upload_id,
            upload.created_at,
            upload.content_type,
            format_mapping(upload.metadata),
            format_mapping(upload.attributes),
        ),
    )
    return upload


def find_upload(connection: sqlite3.Connection, bucket: str, key: str, upload_id: str) -> MultipartUpload:
    """An unfinished upload."""
    number, _ = find_bucket(connection, bucket)
    found = connection.execute(
        f"SELECT {_UPLOAD} FROM uploads WHERE id = ? AND bucket_id = ? AND key = ?",
        (upload_id, number, key.encode()),
    ).fetchone()
    if found is None:
        raise no_such_upload(upload_id)
    return _upload(bucket, found)


def take_slot(
    connection: sqlite3.Connection, bucket: str, key: str, upload_id: str, number: int, size: int
) -> int | None:
    """Where in the upload's file this part may be written, if it has a place there that nobody wrote to yet."""
    find_upload(connection, bucket, key, upload_id)
    slot_size, is_closed = connection.execute(
        "SELECT slot_size, is_closed FROM uploads WHERE id = ?", (upload_id,)
    ).fetchone()
    if is_closed or size <= 0 or (slot_size and size > slot_size):
        return None
    if not slot_size:
        slot_size = size
        connection.execute("UPDATE uploads SET slot_size = ? WHERE id = ?", (size, upload_id))
    taken = connection.execute(
        "INSERT OR IGNORE INTO slots (upload_id, number) VALUES (?, ?)", (upload_id, number)
    ).rowcount
    return (number - 1) * int(slot_size) if taken else None


def give_back_slot(connection: sqlite3.Connection, upload_id: str, number: int) -> None:
    """The writer of a slot gave up and has closed the file."""
    connection.execute(
        "DELETE FROM slots WHERE upload_id = ? AND number = ? AND NOT is_filled", (upload_id, number)
    )


def put_part(
    connection: sqlite3.Connection, bucket: str, key: str, upload_id: str, stored: StoredPart
) -> tuple[Part, list[str]]:
    """Write a part's row in place of the one before; also returns the blobs that nothing needs any more."""
    find_upload(connection, bucket, key, upload_id)
    part = stored.part
    old = connection.execute(
        "SELECT blob FROM parts WHERE upload_id = ? AND number = ?", (upload_id, part.number)
    ).fetchone()
    connection.execute(
        f"INSERT OR REPLACE INTO parts (upload_id, {_PART}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            upload_id,
            part.number,
            part.etag,
            part.size,
            part.modified_at,
            format_mapping(part.attributes),
            stored.blob,
            stored.is_in_slot,
        ),
    )
    if stored.is_in_slot:
        connection.execute(
            "UPDATE slots SET is_filled = 1 WHERE upload_id = ? AND number = ?", (upload_id, part.number)
        )
    check_quota(connection, find_bucket(connection, bucket)[1].workspace_id)
    return part, release(connection, [old[0]] if old else [])


def read_parts(
    connection: sqlite3.Connection, upload_id: str, wanted: Sequence[tuple[int, str]]
) -> list[StoredPart]:
    """The parts that an object is to be made of; each must be there as the caller knows it."""
    found = {
        row[0]: _part(row)
        for row in connection.execute(f"SELECT {_PART} FROM parts WHERE upload_id = ?", (upload_id,))
    }
    parts = []
    for number, etag in wanted:
        part = found.get(number)
        if part is None or part.part.etag != etag.strip('"').lower():
            raise wrong_part(number, was_received=part is not None)
        parts.append(part)
    return parts


def close_upload(connection: sqlite3.Connection, upload_id: str, parts: Sequence[StoredPart]) -> bool:
    """Give out no slots any more; tells whether the upload's file consists of exactly these parts."""
    connection.execute("UPDATE uploads SET is_closed = 1 WHERE id = ?", (upload_id,))
    (slot_size,) = connection.execute("SELECT slot_size FROM uploads WHERE id = ?", (upload_id,)).fetchone()
    slots = connection.execute(
        "SELECT number, is_filled FROM slots WHERE upload_id = ? ORDER BY number", (upload_id,)
    ).fetchall()
    return (
        all(part.is_in_slot for part in parts)
        and all(part.part.size == slot_size for part in parts[:-1])
        # Each of them was written by now, and nobody can be writing behind them.
        and slots == [(number, 1) for number in range(1, len(parts) + 1)]
        and [part.part.number for part in parts] == list(range(1, len(parts) + 1))
    )


def drop_upload(connection: sqlite3.Connection, upload_id: str) -> list[str]:
    """Remove an upload and its parts; returns the blobs that nothing needs any more."""
    # The parts first: the tables count them to the bucket of their upload.
    gone = connection.execute("DELETE FROM parts WHERE upload_id = ? RETURNING blob", (upload_id,)).fetchall()
    connection.execute("DELETE FROM slots WHERE upload_id = ?", (upload_id,))
    connection.execute("DELETE FROM uploads WHERE id = ?", (upload_id,))
    return release(connection, [row[0] for row in gone])


def drop_uploads(connection: sqlite3.Connection, upload_ids: Iterable[str]) -> list[str]:
    """Remove uploads and their parts; returns the blobs that nothing needs any more."""
    return [blob for upload_id in upload_ids for blob in drop_upload(connection, upload_id)]


def drop_bucket_uploads(connection: sqlite3.Connection, bucket: str) -> tuple[list[str], list[str]]:
    """Remove all unfinished uploads of a bucket: their names, and the blobs that nothing needs any more."""
    number, _ = find_bucket(connection, bucket)
    names = [
        row[0]
        for row in connection.execute("SELECT id FROM uploads WHERE bucket_id = ?", (number,)).fetchall()
    ]
    return names, drop_uploads(connection, names)


def stale_uploads(connection: sqlite3.Connection, before: float, limit: int) -> list[str]:
    """Uploads that got their last part, or were begun, before a moment."""
    return [
        row[0]
        for row in connection.execute(
            "SELECT id FROM uploads WHERE created_at < ?1 AND NOT EXISTS"
            " (SELECT 1 FROM parts WHERE upload_id = id AND modified_at >= ?1) LIMIT ?2",
            (before, limit),
        )
    ]


def unknown_uploads(connection: sqlite3.Connection, names: Iterable[str]) -> list[str]:
    """The names among these that belong to no unfinished upload."""
    return [
        name
        for name in names
        if not connection.execute("SELECT 1 FROM uploads WHERE id = ?", (name,)).fetchone()
    ]


def list_parts(
    connection: sqlite3.Connection, bucket: str, key: str, upload_id: str, after: int, limit: int
) -> PartListing:
    """One page of the parts that were received."""
    upload = find_upload(connection, bucket, key, upload_id)
    rows = connection.execute(
        f"SELECT {_PART} FROM parts WHERE upload_id = ? AND number > ? ORDER BY number LIMIT ?",
        (upload_id, after, limit + 1),
    ).fetchall()
    parts = tuple(_part(row).part for row in rows[:limit])
    more = len(rows) > limit
    return PartListing(upload, parts, (parts[-1].number if parts else after) if more else 0)


def list_uploads(
    connection: sqlite3.Connection,
    bucket: str,
    prefix: str,
    delimiter: str,
    after: tuple[str, str],
    limit: int,
) -> UploadListing:
    """One page of unfinished uploads, by key and then by age."""
    number, _ = find_bucket(connection, bucket)
    low, cut = prefix.encode(), delimiter.encode()
    high = successor(low)
    start = max((low, ""), (after[0].encode(), after[1]))
    if after[0] and not after[1]:
        # Behind all uploads of that key, or behind the folder of that name.
        folder = folder_of(start[0], low, cut) if cut else b""
        start = max((low, ""), (successor(folder) if folder == start[0] else start[0] + b"\0", ""))
    uploads: list[MultipartUpload] = []
    folders: list[str] = []
    last = ("", "")
    while start[0] < high:
        rows = connection.execute(
            f"SELECT {_UPLOAD} FROM uploads WHERE bucket_id = ? AND (key, id) > (?, ?) AND key < ?"
            " ORDER BY key, id",
            (number, *start, high),
        )
        start = (high, "")
        with closing(rows):
            for values in rows:
                if len(uploads) + len(folders) >= limit:
                    return UploadListing(tuple(uploads), tuple(folders), *(last if limit > 0 else after))
                folder = folder_of(values[0], low, cut) if cut else b""
                if folder:
                    folders.append(folder.decode())
                    last, start = (folder.decode(), ""), (successor(folder), "")
                    break
                uploads.append(_upload(bucket, values))
                last = (uploads[-1].key, uploads[-1].upload_id)
    return UploadListing(tuple(uploads), tuple(folders))


def _upload(bucket: str, values: tuple[Any, ...]) -> MultipartUpload:
    key, upload_id, created_at, content_type, metadata, attributes = values
    return MultipartUpload(
        bucket,
        key.decode(),
        upload_id,
        created_at,
        content_type,
        parse_mapping(metadata),
        parse_mapping(attributes),
    )


def _part(values: tuple[Any, ...]) -> StoredPart:
    number, md5, size, modified_at, attributes, blob, is_in_slot = values
    return StoredPart(Part(number, md5, size, modified_at, parse_mapping(attributes)), blob, bool(is_in_slot))


def changed_since(parts: Sequence[StoredPart], now: Sequence[StoredPart]) -> None:
    """Refuse to complete an upload whose parts were replaced in the middle of it."""
    if list(parts) != list(now):
        raise Conflict(
            "A part was sent again while the upload was completed.",
            hint="Complete it again.",
            code="part_changed",
        )
