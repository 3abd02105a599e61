"""Listing all versions of a bucket's objects, page by page."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from heapq import merge
from typing import Any

from trainshed.store.embedded.bucket_rows import find_bucket
from trainshed.store.embedded.index import COLUMNS, folder_of, read_row, successor
from trainshed.store.embedded.versions import MARKER, NULL
from trainshed.store.object_store import Version, VersionListing

__all__ = ["list_versions"]


def list_versions(
    connection: sqlite3.Connection,
    bucket: str,
    prefix: str,
    delimiter: str,
    after: tuple[str, str],
    limit: int,
) -> VersionListing:
    """One page of versions, by key and then from the newest to the oldest."""
    number, _ = find_bucket(connection, bucket)
    low, cut = prefix.encode(), delimiter.encode()
    high = successor(low)
    after_key = after[0].encode()
    start = max(low, after_key)
    skip = ""
    if after_key and after_key >= low:
        folder = folder_of(after_key, low, cut) if cut else b""
        if folder == after_key:
            start = successor(folder)
        elif after[1]:
            skip = after[1]
        else:
            start = after_key + b"\0"
    found: list[Version] = []
    folders: list[str] = []
    last = ("", "")
    while start < high:
        rows = _Rows(connection, number, start, high)
        start = high
        latest = b""
        with closing(rows):
            for values in rows:
                key = values[0]
                is_latest, latest = key != latest, key
                if skip:
                    # Behind the version named, within its key: a version removed meanwhile ends the wait, too.
                    if key == after_key:
                        if (values[9] or NULL) == skip:
                            skip = ""
                        continue
                    skip = ""
                if len(found) + len(folders) >= limit:
                    return VersionListing(tuple(found), tuple(folders), *(last if limit > 0 else after))
                folder = folder_of(key, low, cut) if cut else b""
                if folder:
                    folders.append(folder.decode())
                    last, start = (folder.decode(), ""), successor(folder)
                    break
                info = read_row(bucket, values).info
                found.append(Version(info, is_latest, values[8] == MARKER))
                last = (info.key, info.version_id or NULL)
    return VersionListing(tuple(found), tuple(folders))


class _Rows:
    """The rows of both tables in one order; closed early, so that no scan holds back other work."""

    def __init__(self, connection: sqlite3.Connection, number: int, start: bytes, high: bytes) -> None:
        where = "WHERE bucket_id = ? AND key >= ? AND key < ?"
        self._present = connection.execute(
            f"SELECT {COLUMNS} FROM objects {where} ORDER BY key", (number, start, high)
        )
        self._older = connection.execute(
            f"SELECT {COLUMNS}, sequence FROM versions {where} ORDER BY key, sequence DESC",
            (number, start, high),
        )
        self._merged = merge(
            ((values[0], 0, 0, values) for values in self._present),
            ((values[0], 1, -values[11], values[:11]) for values in self._older),
        )

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> tuple[Any, ...]:
        values: tuple[Any, ...] = next(self._merged)[3]
        return values

    def close(self) -> None:
        """Give back both scans."""
        self._present.close()
        self._older.close()
