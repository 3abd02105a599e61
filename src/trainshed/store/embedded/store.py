"""The embedded object store: opened directly by every process of the platform that has its folder."""

from __future__ import annotations

import io
import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from trainshed.model.errors import InvalidInput, NotAllowed, NotFound, Unavailable
from trainshed.model.names import check_bucket_name, check_key
from trainshed.store.embedded import index
from trainshed.store.embedded.blobs import Blobs, BlobWriter
from trainshed.store.embedded.check import CheckReport, check_store
from trainshed.store.embedded.file_window import FileWindow, copy_file
from trainshed.store.embedded.reserve import Reserve
from trainshed.store.embedded.transactions import Transactions, explain_os_error, explained_errors
from trainshed.store.embedded.upload import EmbeddedUpload
from trainshed.store.object_store import FOLDER_TYPE, Bucket, Listing, ObjectInfo

__all__ = ["EmbeddedStore"]

T = TypeVar("T")

_CHUNK = 1 << 20
_INTERNAL_BUCKET = re.compile(r"\.[a-z0-9-]{1,62}")
_MAX_METADATA = 8192
_EMPTY_FILE = "/dev/null"

_live: weakref.WeakSet[EmbeddedStore] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    for store in list(_live):
        store._forget_parent()


os.register_at_fork(after_in_child=_begin_anew_after_fork)


class EmbeddedStore:
    """Buckets and objects in a folder of this machine, safe for many processes and threads at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._blobs = Blobs(folder)
        self._transactions = Transactions(folder / "index.sqlite")
        self._swept: list[str] = []
        self._swept_lock = threading.Lock()
        self._reserve = Reserve(folder / "reserve")
        _live.add(self)
        try:
            self.collect_garbage()
        except Unavailable:
            pass  # A full disk: what is there can still be read, and removed.

    # --- buckets ---

    def create_bucket(self, name: str, workspace_id: str) -> Bucket:
        """Make a bucket for a workspace."""
        check_bucket_name(name)
        bucket = Bucket(name, workspace_id, time.time())
        return self._write(lambda c: index.insert_bucket(c, bucket, may_exist=False))

    def ensure_bucket(self, name: str, workspace_id: str = "") -> Bucket:
        """The bucket, made if it is not there yet. The platform's own buckets may be named here."""
        if not _INTERNAL_BUCKET.fullmatch(name):
            check_bucket_name(name)
        with self._transactions.read() as connection:
            try:
                return index.find_bucket(connection, name)[1]
            except NotFound:
                pass
        bucket = Bucket(name, workspace_id, time.time())
        return self._write(lambda c: index.insert_bucket(c, bucket, may_exist=True))

    def delete_bucket(self, name: str) -> None:
        """Remove an empty bucket."""
        if name.startswith("."):
            raise NotAllowed(f"The bucket '{name}' belongs to the platform.", hint="It cannot be removed.")
        self._write(lambda c: index.delete_bucket(c, name))

    def bucket(self, name: str) -> Bucket:
        """What is known of a bucket."""
        return self._read(name, lambda c: index.find_bucket(c, name)[1])

    def buckets(self, workspace_id: str | None = None) -> list[Bucket]:
        """All buckets of a workspace (or of all), without the platform's own."""
        with self._transactions.read() as connection:
            return index.list_buckets(connection, workspace_id)

    # --- writing ---

    def upload(
        self,
        bucket: str,
        key: str,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        with_sha256: bool = False,
    ) -> EmbeddedUpload:
        """Begin an object whose bytes arrive piece by piece."""
        check_key(key)
        self.bucket(bucket)
        blob = BlobWriter(self._blobs, with_sha256=with_sha256)
        return EmbeddedUpload(self._commit_row, blob, bucket, key, content_type, _checked_metadata(metadata))

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes | BinaryIO | Iterable[bytes],
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        expected_md5: str = "",
        expected_sha256: str = "",
    ) -> ObjectInfo:
        """Store an object, in place of the one that had its key."""
        with self.upload(
            bucket, key, content_type=content_type, metadata=metadata, with_sha256=bool(expected_sha256)
        ) as upload:
            for piece in _pieces(data):
                upload.write(piece)
            return upload.commit(expected_md5=expected_md5, expected_sha256=expected_sha256)

    def put_folder(self, bucket: str, key: str) -> ObjectInfo:
        """Make a folder: an empty object whose key ends in `/`."""
        return self.put(bucket, key.rstrip("/") + "/", b"", content_type=FOLDER_TYPE)

    def copy(self, bucket: str, key: str, to_bucket: str, to_key: str) -> ObjectInfo:
        """Copy one object, replacing the one that had the new key. No bytes move."""
        check_key(to_key)
        self._ensure_internal(to_bucket)
        info, free = self._write(lambda c: index.copy_object(c, bucket, key, to_bucket, to_key, time.time()))
        self._remove(free)
        return info

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
        self._ensure_internal(bucket)
        existed, free = self._write_freeing(lambda c: index.delete_object(c, bucket, key))
        self._remove(free)
        return existed

    def delete_prefix(self, bucket: str, prefix: str) -> int:
        """Remove all objects below a prefix; tells how many."""
        self._ensure_internal(bucket)
        total = 0
        while True:
            # In pages, so that other writers get their turn.
            count, free = self._write_freeing(lambda c: index.delete_page(c, bucket, prefix, 1000))
            self._remove(free)
            total += count
            if count < 1000:
                return total

    # --- reading ---

    def info(self, bucket: str, key: str) -> ObjectInfo:
        """What is known of an object."""
        return self._find(bucket, key).info

    @contextmanager
    def open(self, bucket: str, key: str, start: int = 0, length: int | None = None) -> Iterator[BinaryIO]:
        """Read an object, or a range of it. It stays readable while it is overwritten or removed."""
        info, file = self._open(bucket, key)
        end = info.size if length is None else min(info.size, start + length)
        with io.BufferedReader(FileWindow(file, start, end), _CHUNK) as reader:
            yield cast(BinaryIO, reader)

    def open_object(self, bucket: str, key: str) -> tuple[ObjectInfo, BinaryIO]:
        """An object and its bytes, both of the same moment. The caller closes the file."""
        info, file = self._open(bucket, key)
        return info, os.fdopen(file, "rb")

    def fetch_to_file(self, bucket: str, key: str, target: int) -> ObjectInfo:
        """Copy an object's bytes into an open file descriptor, within the kernel where it can."""
        info, file = self._open(bucket, key)
        try:
            copy_file(file, target, info.size)
        finally:
            os.close(file)
        return info

    def list(
        self, bucket: str, prefix: str = "", *, delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing:
        """One page of keys in exact byte order."""
        return self._read(bucket, lambda c: index.list_page(c, bucket, prefix, delimiter, after, limit))

    def walk(self, bucket: str, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects below a prefix, page by page: no lock is held between them."""
        after = ""
        while True:
            page = self.list(bucket, prefix, after=after)
            yield from page.objects
            after = page.next_after
            if not after:
                return

    # --- upkeep ---

    def collect_garbage(self) -> int:
        """Remove blobs that nothing needs, left by processes that were killed; tells how many."""
        with self._transactions.read() as connection:

            def unknown(blobs: list[str]) -> set[str]:
                return set(index.unknown_blobs(connection, blobs))

            removed = self._blobs.sweep_dead_sessions(unknown)
        while True:
            with self._transactions.read() as connection:
                blobs = index.pending_garbage(connection, 1000)
            if not blobs:
                return removed
            with explained_errors():
                self._blobs.remove(blobs)
            removed += len(blobs)
            self._write(partial(index.forget_garbage, blobs=blobs))

    def verify(self, *, quarantine: bool = False) -> CheckReport:
        """Read every object's bytes again; with `quarantine`, damaged files are set aside and read no more."""
        with explained_errors():
            return check_store(self._transactions, self._blobs, quarantine=quarantine)

    def close(self) -> None:
        """Give back connections and files."""
        if self._swept:
            try:
                self._write(lambda c: None)
            except Unavailable:
                pass  # The next opening removes what this one could not strike from the list.
        self._blobs.close()
        self._transactions.close()

    def _forget_parent(self) -> None:
        self._swept_lock = threading.Lock()
        self._swept = []
        self._transactions.forget_connections()
        self._blobs.forget_session()

    def _ensure_internal(self, bucket: str) -> None:
        if _INTERNAL_BUCKET.fullmatch(bucket):
            self.bucket(bucket)

    def _read(self, bucket: str, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._transactions.read() as connection:
                return work(connection)
        except NotFound as error:
            if error.code != "no_such_bucket" or not _INTERNAL_BUCKET.fullmatch(bucket):
                raise
        self.ensure_bucket(bucket)
        with self._transactions.read() as connection:
            return work(connection)

    def _write(self, work: Callable[[sqlite3.Connection], T], folders: Iterable[Path] = ()) -> T:
        with self._swept_lock:
            swept, self._swept = self._swept, []

        def all_work(connection: sqlite3.Connection) -> T:
            # Rides along with a write that is made anyway: striking a removed blob needs no commit of its own.
            index.forget_garbage(connection, swept)
            return work(connection)

        try:
            return self._transactions.write(all_work, folders=folders)
        except BaseException:
            with self._swept_lock:
                self._swept.extend(swept)
            raise

    def _commit_row(self, row: index.Row, folders: Sequence[Path]) -> None:
        self._remove(self._write(lambda connection: index.put_object(connection, row), folders))

    def _write_freeing(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write what makes room. On a full disk the index could not even take the note, but for the reserve."""
        try:
            return self._write(work)
        except Unavailable as error:
            if error.code != "disk_full":
                raise
        self._reserve.release()
        return self._write(work)

    def _remove(self, blobs: Sequence[str]) -> None:
        if blobs:
            try:
                self._blobs.remove(blobs)
            except OSError:
                return  # It stays on the list of garbage.
            with self._swept_lock:
                self._swept.extend(blobs)
            self._reserve.refill()

    def _find(self, bucket: str, key: str) -> index.Row:
        check_key(key)
        return self._read(bucket, lambda c: index.find_object(c, bucket, key))

    def _open(self, bucket: str, key: str) -> tuple[ObjectInfo, int]:
        missing = ""
        while True:
            row = self._find(bucket, key)
            path = self._blobs.path(row.blob) if row.blob else Path(_EMPTY_FILE)
            try:
                return row.info, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                # Overwritten or removed since the row was read: read it again.
                if missing == row.blob:
                    raise Unavailable(
                        f"The bytes of '{key}' in the bucket '{bucket}' are missing from the disk.",
                        hint="Ask an administrator to check the store, and upload the object again.",
                        code="blob_missing",
                    ) from None
                missing = row.blob
            except OSError as error:
                raise explain_os_error(error) from error


def _pieces(data: bytes | BinaryIO | Iterable[bytes]) -> Iterator[bytes | memoryview]:
    if isinstance(data, bytes | bytearray | memoryview):
        yield data
    elif hasattr(data, "read"):
        while piece := data.read(_CHUNK):
            yield piece
    else:
        yield from data


def _checked_metadata(metadata: dict[str, str] | None) -> dict[str, str]:
    metadata = dict(metadata or {})
    if sum(len(name) + len(value) for name, value in metadata.items()) > _MAX_METADATA:
        raise InvalidInput(
            f"The metadata is longer than {_MAX_METADATA} characters.",
            hint="Put it into an object of its own.",
        )
    return metadata
