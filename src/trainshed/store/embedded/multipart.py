"""Objects that arrive in parts."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from trainshed.model.errors import InvalidInput, NotFound, TrainshedError
from trainshed.model.names import check_key
from trainshed.store.embedded import index, multipart_rows
from trainshed.store.embedded.blob_file import BlobFile, BlobWriter
from trainshed.store.embedded.core import StoreCore
from trainshed.store.embedded.file_window import copy_range
from trainshed.store.embedded.multipart_rows import StoredPart
from trainshed.store.embedded.part_files import SlotWriter
from trainshed.store.embedded.transactions import UNCERTAIN, explained_errors
from trainshed.store.embedded.upload import Reception, Sink
from trainshed.store.object_store import (
    Condition,
    MultipartUpload,
    ObjectInfo,
    Part,
    PartListing,
    UploadListing,
)
from trainshed.store.rules import (
    UPLOAD_ATTRIBUTE,
    check_part_number,
    check_part_order,
    check_part_sizes,
    checked_metadata,
    no_such_upload,
    pieces_of,
)

__all__ = ["MultipartOperations"]

_CHUNK = 1 << 20


class MultipartOperations(StoreCore):
    """Begin, fill, complete and abort multipart uploads."""

    def create_upload(
        self,
        bucket: str,
        key: str,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
    ) -> MultipartUpload:
        """Begin an object that arrives in parts."""
        check_key(key)
        upload = MultipartUpload(
            bucket,
            key,
            multipart_rows.new_upload_id(),
            time.time(),
            content_type,
            checked_metadata(metadata),
            dict(attributes or {}),
        )
        return self._write(lambda c: multipart_rows.insert_upload(c, upload))

    def find_upload(self, bucket: str, key: str, upload_id: str) -> MultipartUpload:
        """What is known of an unfinished upload."""
        return self._read(bucket, lambda c: multipart_rows.find_upload(c, bucket, key, upload_id))

    def upload_part(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        number: int,
        *,
        size: int | None = None,
        with_sha256: bool = False,
    ) -> Reception[Part]:
        """Begin a part. One whose `size` is told beforehand is written where it stays."""
        check_part_number(number)
        offset = None
        if size:
            offset = self._write(lambda c: multipart_rows.take_slot(c, bucket, key, upload_id, number, size))
        else:
            self.find_upload(bucket, key, upload_id)

        def give_back() -> None:
            try:
                self._write(lambda c: multipart_rows.give_back_slot(c, upload_id, number))
            except TrainshedError:
                pass  # Then the slot stays taken, and completing the upload means copying.

        def record(sink: Sink, folders: Sequence[Path], attributes: dict[str, str]) -> Part:
            part = Part(number, sink.md5, sink.size, time.time(), attributes)
            stored = StoredPart(part, sink.id, isinstance(sink, SlotWriter))
            put = partial(multipart_rows.put_part, bucket=bucket, key=key, upload_id=upload_id, stored=stored)
            part, free = self._write(put, folders)
            self._remove(free)
            return part

        if offset is None or not size:
            return Reception(BlobWriter(self._blobs, with_sha256=with_sha256), record)
        try:
            file = self._part_files.open_slot(upload_id, offset)
        except TrainshedError:
            give_back()
            raise
        return Reception(SlotWriter(file, size, with_sha256=with_sha256, give_back=give_back), record)

    def put_part(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        number: int,
        data: bytes | BinaryIO | Iterable[bytes],
        *,
        expected_md5: str = "",
        expected_sha256: str = "",
    ) -> Part:
        """Store a part, in place of the one that had its number."""
        size = len(data) if isinstance(data, bytes) else None
        with self.upload_part(
            bucket, key, upload_id, number, size=size, with_sha256=bool(expected_sha256)
        ) as upload:
            for piece in pieces_of(data):
                upload.write(piece)
            return upload.commit(expected_md5=expected_md5, expected_sha256=expected_sha256)

    def copy_part(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        number: int,
        from_bucket: str,
        from_key: str,
        *,
        version_id: str = "",
        start: int = 0,
        length: int | None = None,
    ) -> Part:
        """Make a part from an object, or from a range of it."""
        info, file = self._open(from_bucket, from_key, version_id)
        try:
            end = info.size if length is None else start + length
            if not 0 <= start <= end <= info.size:
                raise InvalidInput(
                    f"The range does not lie within the {info.size} bytes of '{from_key}'.",
                    hint="Ask for bytes that are there.",
                    code="invalid_range",
                )
            with self.upload_part(bucket, key, upload_id, number, size=end - start) as upload:
                while start < end:
                    with explained_errors():
                        data = os.pread(file, min(_CHUNK, end - start), start)
                        if not data:
                            raise OSError(f"the file of '{from_key}' is too short")
                    upload.write(data)
                    start += len(data)
                return upload.commit()
        finally:
            os.close(file)

    def list_parts(
        self, bucket: str, key: str, upload_id: str, *, after: int = 0, limit: int = 1000
    ) -> PartListing:
        """One page of the parts that were received."""
        return self._read(
            bucket, lambda c: multipart_rows.list_parts(c, bucket, key, upload_id, after, limit)
        )

    def list_uploads(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: str = "",
        after_key: str = "",
        after_upload: str = "",
        limit: int = 1000,
    ) -> UploadListing:
        """One page of unfinished uploads."""
        after = (after_key, after_upload)
        return self._read(
            bucket, lambda c: multipart_rows.list_uploads(c, bucket, prefix, delimiter, after, limit)
        )

    def abort_upload(self, bucket: str, key: str, upload_id: str) -> None:
        """Discard an upload with its parts."""

        def work(connection: sqlite3.Connection) -> list[str]:
            multipart_rows.find_upload(connection, bucket, key, upload_id)
            return multipart_rows.drop_upload(connection, upload_id)

        free = self._write_freeing(work)
        self._part_files.remove([upload_id])
        self._remove(free)

    def complete_upload(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        parts: Sequence[tuple[int, str]],
        *,
        condition: Condition | None = None,
        min_part_size: int = 0,
        attributes: dict[str, str] | None = None,
    ) -> ObjectInfo:
        """Make the object of these parts (number, ETag), in rising order. To say it twice does no harm."""
        check_part_order(parts)

        def close(connection: sqlite3.Connection) -> tuple[MultipartUpload, list[StoredPart], bool]:
            upload = multipart_rows.find_upload(connection, bucket, key, upload_id)
            found = multipart_rows.read_parts(connection, upload_id, parts)
            return upload, found, multipart_rows.close_upload(connection, upload_id, found)

        try:
            upload, found, is_one_file = self._write(close)
        except NotFound as error:
            done = self._completed(bucket, key, upload_id)
            if error.code != "no_such_upload" or done is None:
                raise
            return done
        check_part_sizes([(part.part.number, part.part.size) for part in found], min_part_size)
        try:
            blob = self._assemble(upload_id, found, is_one_file)
        except NotFound:
            done = self._completed(bucket, key, upload_id)
            if done is None:
                raise
            return done
        info = ObjectInfo(
            bucket,
            key,
            sum(part.part.size for part in found),
            _combined_etag(found),
            time.time(),
            upload.content_type,
            upload.metadata,
            {**upload.attributes, **(attributes or {}), UPLOAD_ATTRIBUTE: upload_id},
        )

        def commit(connection: sqlite3.Connection) -> tuple[ObjectInfo, list[str]]:
            multipart_rows.find_upload(connection, bucket, key, upload_id)
            now = multipart_rows.read_parts(connection, upload_id, parts)
            multipart_rows.changed_since(found, now)
            # The parts go first: their bytes count once.
            free = multipart_rows.drop_upload(connection, upload_id)
            stored, more = index.put_object(connection, index.Row(info, blob.id), condition)
            index.put_pieces(connection, blob.id, [(part.part.size, part.part.etag) for part in found])
            return stored, free + more

        try:
            info, free = self._write(commit, blob.publish())
        except TrainshedError as error:
            if error.code not in UNCERTAIN:
                blob.discard()
            done = self._completed(bucket, key, upload_id) if error.code == "no_such_upload" else None
            if done is None:
                raise
            return done
        blob.settle()
        self._part_files.remove([upload_id])
        self._remove(free)
        return info

    def _assemble(self, upload_id: str, parts: Sequence[StoredPart], is_one_file: bool) -> BlobFile:
        """A new blob file with the bytes of all parts, not yet published."""
        total = sum(part.part.size for part in parts)
        blob = BlobFile(self._blobs)
        if not total:
            return blob
        base = self._part_files.path(upload_id)
        try:
            with explained_errors():
                if is_one_file:
                    blob.adopt(base, total)
                    return blob
                target = blob.create()
                slot = self._slot_size(upload_id)
                for part in parts:
                    path = base if part.is_in_slot else self._blobs.path(part.blob)
                    offset = (part.part.number - 1) * slot if part.is_in_slot else 0
                    if part.part.size:
                        _copy_part(path, offset, part.part.size, target)
        except BaseException:
            blob.discard()
            # Aborted or completed meanwhile, which explains why a file is gone.
            with self._transactions.read() as connection:
                if multipart_rows.unknown_uploads(connection, [upload_id]):
                    raise no_such_upload(upload_id) from None
            raise
        return blob

    def _slot_size(self, upload_id: str) -> int:
        with self._transactions.read() as connection:
            found = connection.execute("SELECT slot_size FROM uploads WHERE id = ?", (upload_id,)).fetchone()
        return int(found[0]) if found else 0

    def _completed(self, bucket: str, key: str, upload_id: str) -> ObjectInfo | None:
        """The object, if it is the one that this upload became."""
        try:
            info = self._find(bucket, key).info
        except NotFound:
            return None
        return info if info.attributes.get(UPLOAD_ATTRIBUTE) == upload_id else None


def _copy_part(path: Path, offset: int, size: int, target: int) -> None:
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        copy_range(source, offset, target, size)
    finally:
        os.close(source)


def _combined_etag(parts: Sequence[StoredPart]) -> str:
    digests = b"".join(bytes.fromhex(part.part.etag) for part in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"
