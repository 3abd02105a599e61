"""The tables of the index, as the steps that lead from each version of them to the next."""

from __future__ import annotations

import sqlite3

from trainshed.model.errors import HostUnfit

__all__ = ["SCHEMA_VERSION", "upgrade_schema"]

_FIRST = """
CREATE TABLE buckets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    workspace_id TEXT NOT NULL,
    created_at REAL NOT NULL
);
CREATE TABLE objects (
    bucket_id INTEGER NOT NULL REFERENCES buckets (id),
    key BLOB NOT NULL,
    blob TEXT NOT NULL,
    size INTEGER NOT NULL,
    md5 TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    content_type TEXT NOT NULL,
    metadata TEXT NOT NULL,
    modified_at REAL NOT NULL,
    PRIMARY KEY (bucket_id, key)
) WITHOUT ROWID;
CREATE INDEX objects_blob ON objects (blob) WHERE blob != '';
CREATE TABLE garbage (blob TEXT PRIMARY KEY) WITHOUT ROWID;
"""

# Versions before the present one lie in a table of their own, so that listing a bucket costs the same with
# and without them. Every object is one blob; `pieces` tells the parts of those whose ETag is not an MD5.
_SECOND = """
ALTER TABLE buckets ADD COLUMN versioning TEXT NOT NULL DEFAULT '';
CREATE INDEX buckets_workspace ON buckets (workspace_id);
CREATE TABLE documents (
    bucket_id INTEGER NOT NULL REFERENCES buckets (id),
    name TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (bucket_id, name)
) WITHOUT ROWID;
ALTER TABLE objects ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE objects ADD COLUMN version_id TEXT NOT NULL DEFAULT '';
ALTER TABLE objects ADD COLUMN attributes TEXT NOT NULL DEFAULT '';
CREATE TABLE versions (
    bucket_id INTEGER NOT NULL REFERENCES buckets (id),
    key BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    blob TEXT NOT NULL,
    size INTEGER NOT NULL,
    md5 TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    content_type TEXT NOT NULL,
    metadata TEXT NOT NULL,
    modified_at REAL NOT NULL,
    kind TEXT NOT NULL,
    version_id TEXT NOT NULL,
    attributes TEXT NOT NULL,
    PRIMARY KEY (bucket_id, key, sequence)
) WITHOUT ROWID;
CREATE INDEX versions_blob ON versions (blob) WHERE blob != '';
CREATE TABLE pieces (
    blob TEXT NOT NULL,
    number INTEGER NOT NULL,
    size INTEGER NOT NULL,
    md5 TEXT NOT NULL,
    PRIMARY KEY (blob, number)
) WITHOUT ROWID;
CREATE TABLE uploads (
    id TEXT PRIMARY KEY,
    bucket_id INTEGER NOT NULL REFERENCES buckets (id),
    key BLOB NOT NULL,
    created_at REAL NOT NULL,
    content_type TEXT NOT NULL,
    metadata TEXT NOT NULL,
    attributes TEXT NOT NULL,
    slot_size INTEGER NOT NULL DEFAULT 0,
    is_closed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX uploads_key ON uploads (bucket_id, key, id);
CREATE TABLE slots (
    upload_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    is_filled INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (upload_id, number)
) WITHOUT ROWID;
CREATE TABLE parts (
    upload_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    blob TEXT NOT NULL,
    is_in_slot INTEGER NOT NULL,
    size INTEGER NOT NULL,
    md5 TEXT NOT NULL,
    modified_at REAL NOT NULL,
    attributes TEXT NOT NULL,
    PRIMARY KEY (upload_id, number)
) WITHOUT ROWID;
CREATE INDEX parts_blob ON parts (blob) WHERE blob != '';
CREATE TABLE quotas (
    workspace_id TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL,
    objects INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE usage (
    bucket_id INTEGER PRIMARY KEY,
    objects INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
INSERT INTO usage (bucket_id, objects, bytes)
    SELECT id, (SELECT count(*) FROM objects WHERE bucket_id = id),
        (SELECT coalesce(sum(size), 0) FROM objects WHERE bucket_id = id) FROM buckets;
CREATE TRIGGER bucket_added AFTER INSERT ON buckets BEGIN
    INSERT OR REPLACE INTO usage (bucket_id, objects, bytes) VALUES (new.id, 0, 0);
END;
CREATE TRIGGER bucket_removed AFTER DELETE ON buckets BEGIN
    DELETE FROM usage WHERE bucket_id = old.id;
    DELETE FROM documents WHERE bucket_id = old.id;
END;
"""

# What a bucket holds is counted by the tables themselves, whoever changes them.
_COUNTED = """
CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN
    UPDATE usage SET objects = objects + {count}, bytes = bytes + new.size WHERE bucket_id = {new};
END;
CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN
    UPDATE usage SET objects = objects - {count}, bytes = bytes - old.size WHERE bucket_id = {old};
END;
CREATE TRIGGER {table}_resized AFTER UPDATE OF size ON {table} WHEN new.size != old.size BEGIN
    UPDATE usage SET bytes = bytes + new.size - old.size WHERE bucket_id = {new};
END;
"""
_UPLOADS_BUCKET = "(SELECT bucket_id FROM uploads WHERE id = {row}.upload_id)"
_SECOND += "".join(
    _COUNTED.format(table=table, count=1, new="new.bucket_id", old="old.bucket_id")
    for table in ("objects", "versions")
) + _COUNTED.format(
    table="parts", count=0, new=_UPLOADS_BUCKET.format(row="new"), old=_UPLOADS_BUCKET.format(row="old")
)

_STEPS = (_FIRST, _SECOND)
SCHEMA_VERSION = len(_STEPS)


def upgrade_schema(connection: sqlite3.Connection, place: str) -> None:
    """Bring the tables up to date, each step whole or not at all. The caller keeps other openers away."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise HostUnfit(
            f"The object store at {place} was written by a newer version of Trainshed.",
            hint="Install that version or a later one.",
            code="store_too_new",
        )
    for number in range(version, SCHEMA_VERSION):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {_STEPS[number]} PRAGMA user_version = {number + 1}; COMMIT;"
            )
        finally:
            if connection.in_transaction:
                connection.rollback()
