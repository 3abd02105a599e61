"""The embedded object store: opened directly by every process of the platform that has its folder."""

from __future__ import annotations

import io
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from trainshed.model.errors import NotAllowed
from trainshed.model.names import check_bucket_name, check_key
from trainshed.store.embedded import bucket_rows, index, multipart_rows
from trainshed.store.embedded.append import AppendOperations
from trainshed.store.embedded.blob_file import BlobWriter
from trainshed.store.embedded.expiry import ExpiryOperations
from trainshed.store.embedded.file_window import FileWindow, copy_file
from trainshed.store.embedded.together import ObjectReception
from trainshed.store.object_store import FOLDER_TYPE, Bucket, Condition, ObjectInfo
from trainshed.store.rules import checked_metadata, pieces_of

__all__ = ["EmbeddedStore"]

_CHUNK = 1 << 20


class EmbeddedStore(ExpiryOperations, AppendOperations):
    """Buckets and objects in a folder of this machine, safe for many processes and threads at once."""

    # --- buckets ---

    def create_bucket(self, name: str, workspace_id: str) -> Bucket:
        """Make a bucket for a workspace."""
        check_bucket_name(name)
        bucket = Bucket(name, workspace_id, time.time())
        return self._write(lambda c: bucket_rows.insert_bucket(c, bucket, may_exist=False))

    def delete_bucket(self, name: str) -> None:
        """Remove an empty bucket."""
        if name.startswith("."):
            raise NotAllowed(f"The bucket '{name}' belongs to the platform.", hint="It cannot be removed.")

        def work(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
            left = multipart_rows.drop_bucket_uploads(connection, name)
            bucket_rows.delete_bucket(connection, name)
            return left

        uploads, free = self._write(work)
        self._seen_buckets.discard(name)
        self._part_files.remove(uploads)
        self._remove(free)

    def buckets(self, workspace_id: str | None = None) -> list[Bucket]:
        """All buckets of a workspace (or of all), without the platform's own."""
        with self._transactions.read() as connection:
            return bucket_rows.list_buckets(connection, workspace_id)

    # --- writing ---

    def upload(
        self,
        bucket: str,
        key: str,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
        condition: Condition | None = None,
        with_sha256: bool = False,
    ) -> ObjectReception:
        """Begin an object whose bytes arrive piece by piece."""
        check_key(key)
        if bucket not in self._seen_buckets:
            # Only to refuse before the bytes come: the bucket is looked up again when they are committed.
            self.bucket(bucket)
            self._seen_buckets.add(bucket)
        about = checked_metadata(metadata)

        def describe(blob: BlobWriter, late: dict[str, str]) -> index.Row:
            kept = {**(attributes or {}), **late}
            info = ObjectInfo(bucket, key, blob.size, blob.md5, time.time(), content_type, about, kept)
            return index.Row(info, blob.id, blob.sha256)

        blob = BlobWriter(self._blobs, with_sha256=with_sha256)
        return ObjectReception(blob, describe, condition, self._commit_rows)

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes | BinaryIO | Iterable[bytes],
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
        condition: Condition | None = None,
        expected_md5: str = "",
        expected_sha256: str = "",
    ) -> ObjectInfo:
        """Store an object, in place of the one that had its key."""
        with self.upload(
            bucket,
            key,
            content_type=content_type,
            metadata=metadata,
            attributes=attributes,
            condition=condition,
            with_sha256=bool(expected_sha256),
        ) as upload:
            for piece in pieces_of(data):
                upload.write(piece)
            return upload.commit(expected_md5=expected_md5, expected_sha256=expected_sha256)

    def put_folder(self, bucket: str, key: str) -> ObjectInfo:
        """Make a folder: an empty object whose key ends in `/`."""
        return self.put(bucket, key.rstrip("/") + "/", b"", content_type=FOLDER_TYPE)

    def copy_prefix(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str) -> int:
        """Copy all objects below a prefix in one step: readers see all of the copy or nothing of it."""
        for part in (prefix, to_prefix):
            if part:
                check_key(part)
        for name in (bucket, to_bucket):
            self._ensure_internal(name)
        count, free = self._write(
            lambda c: index.copy_prefix(c, bucket, prefix, to_bucket, to_prefix, time.time())
        )
        self._remove(free)
        return count

    def delete(self, bucket: str, key: str) -> bool:
        """Remove an object; tells whether there was one."""
        return self.remove(bucket, key).existed

    def delete_prefix(self, bucket: str, prefix: str) -> int:
        """Remove all objects below a prefix; tells how many."""
        self._ensure_internal(bucket)
        total = 0
        while True:
            # In pages, so that other writers get their turn.
            count, free = self._write_freeing(
                lambda c: index.delete_page(c, bucket, prefix, 1000, time.time())
            )
            self._remove(free)
            total += count
            if count < 1000:
                return total

    # --- reading ---

    def info(self, bucket: str, key: str, version_id: str = "") -> ObjectInfo:
        """What is known of an object, or of one version of it."""
        return self._find(bucket, key, version_id).info

    @contextmanager
    def open(self, bucket: str, key: str, start: int = 0, length: int | None = None) -> Iterator[BinaryIO]:
        """Read an object, or a range of it. It stays readable while it is overwritten or removed."""
        info, file = self._open(bucket, key)
        end = info.size if length is None else min(info.size, start + length)
        with io.BufferedReader(FileWindow(file, start, end), _CHUNK) as reader:
            yield cast(BinaryIO, reader)

    def open_object(self, bucket: str, key: str, version_id: str = "") -> tuple[ObjectInfo, BinaryIO]:
        """An object and its bytes, both of the same moment. The caller closes the file."""
        info, file = self._open(bucket, key, version_id)
        if info.is_appendable or os.fstat(file).st_size > info.size:
            # More may follow in the same file, of this object or of the one that it was copied from.
            return info, cast(BinaryIO, io.BufferedReader(FileWindow(file, 0, info.size), _CHUNK))
        return info, os.fdopen(file, "rb")

    def fetch_to_file(self, bucket: str, key: str, target: int) -> ObjectInfo:
        """Copy an object's bytes into an open file descriptor, within the kernel where it can."""
        info, file = self._open(bucket, key)
        try:
            copy_file(file, target, info.size)
        finally:
            os.close(file)
        return info

    def read_rows(self, bucket: str, low: bytes, high: bytes, limit: int) -> list[index.Row]:
        """The first objects from a key on and before another one, with their blobs."""
        return self._read(bucket, lambda c: index.read_rows(c, bucket, low, high, limit))

    def blob_file(self, blob: str) -> str:
        """The path of the file that holds an object's bytes. Nothing but the platform itself may be told of it."""
        return str(self._blobs.path(blob))

    def birthplace(self) -> str:
        """A folder of the store's own in which files may begin that get their names elsewhere on its disk."""
        return self._blobs.birthplace()

    def walk(self, bucket: str, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects below a prefix, page by page: no lock is held between them."""
        after = ""
        while True:
            page = self.list(bucket, prefix, after=after)
            yield from page.objects
            after = page.next_after
            if not after:
                return
