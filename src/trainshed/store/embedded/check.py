"""Reading everything again: does each object still have the bytes that it was given?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from trainshed.store.embedded.blobs import Blobs
from trainshed.store.embedded.transactions import Transactions

__all__ = ["CheckReport", "check_store"]

_CHUNK = 1 << 20
_PAGE = 500


@dataclass(frozen=True)
class CheckReport:
    """What a check of the store found. Objects are named as obs://bucket/key."""

    objects: int
    bytes: int
    # Objects whose file is gone, and objects whose file has other bytes than were stored.
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    # Files that belong to no object.
    orphans: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every object is as it was stored."""
        return not self.missing and not self.damaged


def check_store(transactions: Transactions, blobs: Blobs, *, quarantine: bool) -> CheckReport:
    """Hash every blob once, however many objects share it. The store stays in use meanwhile."""
    objects = size = 0
    missing: list[str] = []
    damaged: list[str] = []
    for blob, rows in groupby(_rows(transactions), key=lambda row: row[0]):
        users = list(rows)
        _, expected_size, expected_md5, _ = users[0]
        names = [row[3] for row in users]
        found = _digest(blobs, blob)
        if found is None:
            # Not a fault if it was removed since the row was read.
            missing += names if _is_named(transactions, blob, "objects") else []
            continue
        objects += len(users)
        size += expected_size
        if found != (expected_size, expected_md5):
            damaged += names
            if quarantine:
                blobs.quarantine(blob)
    orphans = [
        blob for blob in blobs.settled() if not _is_known(transactions, blob) and blobs.path(blob).exists()
    ]
    if quarantine:
        for blob in orphans:
            blobs.quarantine(blob)
    return CheckReport(objects, size, tuple(missing), tuple(damaged), tuple(orphans))


def _rows(transactions: Transactions) -> Iterator[tuple[str, int, str, str]]:
    """Blob, size, MD5 and object, in the order of blobs, page by page."""
    last = ("", -1, b"")
    while True:
        with transactions.read() as connection:
            page = connection.execute(
                "SELECT blob, bucket_id, key, size, md5, name FROM objects JOIN buckets ON buckets.id = bucket_id"
                " WHERE blob != '' AND (blob, bucket_id, key) > (?, ?, ?)"
                " ORDER BY blob, bucket_id, key LIMIT ?",
                (*last, _PAGE),
            ).fetchall()
        for blob, number, key, size, md5, bucket in page:
            last = (blob, number, key)
            yield blob, size, md5, f"obs://{bucket}/{key.decode()}"
        if len(page) < _PAGE:
            return


def _is_known(transactions: Transactions, blob: str) -> bool:
    # Objects first: a blob may move from there to the garbage between the two questions, never back.
    return _is_named(transactions, blob, "objects") or _is_named(transactions, blob, "garbage")


def _is_named(transactions: Transactions, blob: str, table: str) -> bool:
    with transactions.read() as connection:
        return bool(connection.execute(f"SELECT 1 FROM {table} WHERE blob = ? LIMIT 1", (blob,)).fetchall())


def _digest(blobs: Blobs, blob: str) -> tuple[int, str] | None:
    md5, size = hashlib.md5(usedforsecurity=False), 0
    try:
        file = os.open(blobs.path(blob), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        while piece := os.read(file, _CHUNK):
            md5.update(piece)
            size += len(piece)
    except OSError:
        return -1, ""  # The disk itself refuses: as bad as other bytes.
    finally:
        os.close(file)
    return size, md5.hexdigest()
