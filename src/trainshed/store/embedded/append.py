"""Objects that grow: bytes are put behind those that are there, in the same file.

The index says how long an object is, so what lies behind that end in its file is seen by nobody: a crash in the
middle of an append changes nothing. Each append gives the file a new name, so that a blob's name stands for the
same bytes as ever. A file that has other names, too (a copy, a staged folder, a backup), is theirs as well: then
the bytes move to a file of their own first.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from trainshed.model.errors import Conflict, InvalidInput, NotFound, TrainshedError
from trainshed.model.names import check_key
from trainshed.store.embedded import bucket_rows, index
from trainshed.store.embedded.blob_file import BlobFile, BlobWriter
from trainshed.store.embedded.core import StoreCore
from trainshed.store.embedded.file_window import copy_range, digest_file
from trainshed.store.embedded.garbage import count_uses
from trainshed.store.embedded.transactions import UNCERTAIN, explained_errors, locked
from trainshed.store.embedded.upload import Reception, Sink
from trainshed.store.object_store import ObjectInfo
from trainshed.store.rules import check_position, checked_metadata

__all__ = ["AppendOperations"]

# Each append carries the list of pieces along: a long one is folded by hashing the file again.
_MAX_PIECES = 200
_LOCKS = 64


class AppendOperations(StoreCore):
    """Appending to objects."""

    def append(
        self,
        bucket: str,
        key: str,
        position: int,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
    ) -> Reception[ObjectInfo]:
        """Begin bytes that go behind those of an appendable object; its size must be `position` at `commit`."""
        check_key(key)
        if position < 0:
            raise InvalidInput("A position is 0 or more.", code="invalid_position")
        about = ObjectInfo(
            bucket,
            key,
            0,
            "",
            0.0,
            content_type,
            checked_metadata(metadata),
            dict(attributes or {}),
            is_appendable=True,
        )
        # Told before the bytes arrive, and once more when they are here.
        self._read(bucket, lambda c: _present(c, bucket, key, position))

        def record(sink: Sink, folders: Sequence[Path], late: dict[str, str]) -> ObjectInfo:
            info = replace(about, attributes={**about.attributes, **late})
            with self._append_lock(bucket, key):
                return self._append(info, position, sink, folders)

        return Reception(BlobWriter(self._blobs, with_sha256=False), record)

    def _append(self, info: ObjectInfo, position: int, sink: Sink, folders: Sequence[Path]) -> ObjectInfo:
        bucket, key = info.bucket, info.key
        old = self._read(bucket, lambda c: _present(c, bucket, key, position))
        if old is None:
            info = replace(info, size=sink.size, etag=sink.md5, modified_at=time.time())

            def create(connection: sqlite3.Connection) -> tuple[ObjectInfo, list[str]]:
                _present(connection, bucket, key, 0)
                stored = index.put_object(connection, index.Row(info, sink.id))
                index.put_pieces(connection, sink.id, [(sink.size, sink.md5)])
                return stored

            return self._write(create, folders)[0]
        if not sink.size:
            sink.discard()
            return old.info
        pieces = self._pieces_with(old, sink)
        blob = BlobFile(self._blobs)
        try:
            with explained_errors():
                self._extend(blob, old, sink)
                names = blob.publish()
        except BaseException:
            blob.discard()
            raise
        info = replace(
            old.info,
            size=position + sink.size,
            etag=_combined_etag(old.info.etag, sink.md5),
            modified_at=time.time(),
        )

        def commit(connection: sqlite3.Connection) -> tuple[ObjectInfo, list[str]]:
            now = _present(connection, bucket, key, position)
            if now is None or now.blob != old.blob:
                raise Conflict(
                    f"'{key}' was replaced meanwhile.", hint="Look at it again.", code="object_changed"
                )
            index.put_pieces(connection, blob.id, pieces)
            return index.put_object(connection, index.Row(info, blob.id))

        try:
            info, free = self._write(commit, names)
        except TrainshedError as error:
            if error.code not in UNCERTAIN:
                blob.discard()
            raise
        blob.settle()
        self._remove(free)
        sink.discard()
        return info

    def _extend(self, blob: BlobFile, old: index.Row, sink: Sink) -> None:
        """Put the bytes that arrived behind the old ones, in the old file if it is this object's alone."""
        path = self._blobs.path(old.blob) if old.blob else None
        source = os.open(self._blobs.path(sink.id), os.O_RDONLY | os.O_CLOEXEC)
        try:
            if path is not None and path.stat().st_nlink == 1 and not self._is_shared(old.blob):
                blob.adopt(path, None)
                target = blob.reopen(old.info.size)
            else:
                target = blob.create()
                if path is not None:
                    before = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        copy_range(before, 0, target, old.info.size)
                    finally:
                        os.close(before)
            copy_range(source, 0, target, sink.size)
        finally:
            os.close(source)

    def _is_shared(self, blob: str) -> bool:
        with self._transactions.read() as connection:
            return count_uses(connection, blob) > 1

    def _pieces_with(self, old: index.Row, sink: Sink) -> list[tuple[int, str]]:
        with self._transactions.read() as connection:
            pieces = connection.execute(
                "SELECT size, md5 FROM pieces WHERE blob = ? ORDER BY number", (old.blob,)
            ).fetchall()
        if len(pieces) >= _MAX_PIECES:
            with explained_errors():
                pieces = [(old.info.size, digest_file(self._blobs.path(old.blob), old.info.size))]
        return [*pieces, (sink.size, sink.md5)]

    def _append_lock(self, bucket: str, key: str) -> AbstractContextManager[None]:
        number = zlib.crc32(f"{bucket}/{key}".encode()) % _LOCKS
        return locked(self.folder / "locks" / f"append-{number}")


def _present(connection: sqlite3.Connection, bucket: str, key: str, position: int) -> index.Row | None:
    """The object as it is, if bytes can be appended at that position."""
    _, about = bucket_rows.find_bucket(connection, bucket)
    if about.versioning:
        raise Conflict(
            f"The bucket '{bucket}' keeps versions: its objects do not grow.",
            hint="Use another bucket.",
            code="versioned_bucket",
        )
    try:
        row = index.find_object(connection, bucket, key)
    except NotFound:
        row = None
    check_position(
        key,
        position,
        row.info.size if row else None,
        is_appendable=row is not None and row.info.is_appendable,
    )
    return row


def _combined_etag(old: str, md5: str) -> str:
    before, _, count = old.partition("-")
    digest = hashlib.md5(bytes.fromhex(before) + bytes.fromhex(md5), usedforsecurity=False).hexdigest()
    return f"{digest}-{int(count or 1) + 1}"
