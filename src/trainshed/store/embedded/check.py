"""Reading everything again: does each object still have the bytes that it was given?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from itertools import groupby

from trainshed.store.embedded.blobs import Blobs
from trainshed.store.embedded.garbage import is_used
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


def check_store(
    transactions: Transactions,
    blobs: Blobs,
    *,
    quarantine: bool,
    on_progress: Callable[[int, int], None] | None = None,
) -> CheckReport:
    """Hash every blob once, however many objects share it. The store stays in use meanwhile.

    `on_progress` is told the objects and bytes that were checked so far.
    """
    objects = size = 0
    missing: list[str] = []
    damaged: list[str] = []
    for blob, rows in groupby(_rows(transactions), key=lambda row: row[0]):
        users = list(rows)
        _, expected_size, expected_md5, _ = users[0]
        names = [row[3] for row in users]
        is_sound = _is_sound(transactions, blobs, blob, expected_size, expected_md5)
        if is_sound is None:
            # Not a fault if it was removed since the row was read.
            missing += names if _is_known(transactions, blob, ignore_garbage=True) else []
            continue
        objects += len(users)
        size += expected_size
        if not is_sound:
            damaged += names
            if quarantine:
                blobs.quarantine(blob)
        if on_progress is not None:
            on_progress(objects, size)
    orphans = [
        blob for blob in blobs.settled() if not _is_known(transactions, blob) and blobs.path(blob).exists()
    ]
    if quarantine:
        for blob in orphans:
            blobs.quarantine(blob)
    return CheckReport(objects, size, tuple(missing), tuple(damaged), tuple(orphans))


def _rows(transactions: Transactions) -> Iterator[tuple[str, int, str, str]]:
    """Blob, size, MD5 and user, in the order of blobs, page by page."""
    last = ("", "", -1, b"", -1)
    columns = "blob, '{name}' AS source, bucket_id, key, {sequence} AS sequence, size, md5"
    tables = (("objects", "0"), ("versions", "sequence"))
    # Each table is cut off by its own index on blobs before the pages are put together.
    union = " UNION ALL ".join(
        f"SELECT * FROM (SELECT {columns.format(name=name, sequence=sequence)} FROM {name}"
        " WHERE blob != '' AND blob >= ?1 AND (blob, source, bucket_id, key, sequence) > (?1, ?2, ?3, ?4, ?5)"
        " ORDER BY blob, source, bucket_id, key, sequence LIMIT ?6)"
        for name, sequence in tables
    )
    while True:
        with transactions.read() as connection:
            page = connection.execute(
                f"SELECT * FROM ({union}) ORDER BY blob, source, bucket_id, key, sequence LIMIT ?6",
                (*last, _PAGE),
            ).fetchall()
            names = dict(connection.execute("SELECT id, name FROM buckets").fetchall())
        for blob, source, number, key, sequence, size, md5 in page:
            last = (blob, source, number, key, sequence)
            yield blob, size, md5, f"obs://{names.get(number, '?')}/{key.decode()}"
        if len(page) < _PAGE:
            return


def _is_known(transactions: Transactions, blob: str, *, ignore_garbage: bool = False) -> bool:
    # Users first: a blob may move from there to the garbage between the two questions, never back.
    with transactions.read() as connection:
        if is_used(connection, blob):
            return True
        return not ignore_garbage and bool(
            connection.execute("SELECT 1 FROM garbage WHERE blob = ?", (blob,)).fetchall()
        )


def _is_sound(transactions: Transactions, blobs: Blobs, blob: str, size: int, md5: str) -> bool | None:
    """Whether the file has the bytes that were stored; None when there is no file."""
    with transactions.read() as connection:
        pieces = connection.execute(
            "SELECT size, md5 FROM pieces WHERE blob = ? ORDER BY number", (blob,)
        ).fetchall()
    try:
        file = os.open(blobs.path(blob), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        with os.fdopen(file, "rb", buffering=0) as reader:
            # Behind the last piece of an object that is appended to, the next one may be arriving.
            sound = all(_digest(reader, length) == digest for length, digest in pieces or [(size, md5)])
            return sound and (bool(pieces) or not reader.read(1))
    except OSError:
        return False  # The disk itself refuses: as bad as other bytes.


def _digest(reader: FileIO, length: int) -> str:
    md5 = hashlib.md5(usedforsecurity=False)
    while length > 0:
        piece = reader.read(min(_CHUNK, length))
        if not piece:
            return ""
        md5.update(piece)
        length -= len(piece)
    return md5.hexdigest()
