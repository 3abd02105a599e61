"""What all operations of the embedded store stand on: its files, its index, and how both change together."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from trainshed.model.errors import NotFound, TrainshedError, Unavailable
from trainshed.model.names import check_bucket_name, check_key
from trainshed.store.embedded import bucket_rows, garbage, index, multipart_rows, quotas
from trainshed.store.embedded.blobs import Blobs
from trainshed.store.embedded.check import CheckReport, check_store
from trainshed.store.embedded.part_files import PartFiles
from trainshed.store.embedded.reserve import Reserve
from trainshed.store.embedded.together import Wanted, put_objects
from trainshed.store.embedded.transactions import Transactions, explain_os_error, explained_errors
from trainshed.store.object_store import Bucket, ObjectInfo, Usage

__all__ = ["StoreCore"]

T = TypeVar("T")

_INTERNAL_BUCKET = re.compile(r"\.[a-z0-9-]{1,62}")
_EMPTY_FILE = "/dev/null"
# An upload that got no part for this long was given up by its sender.
_ABANDONED_SECONDS = 7 * 86400.0

_live: weakref.WeakSet[StoreCore] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    for store in list(_live):
        store._forget_parent()


os.register_at_fork(after_in_child=_begin_anew_after_fork)


class StoreCore:
    """The folder of the store, opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._blobs = Blobs(folder)
        self._part_files = PartFiles(folder)
        self._transactions = Transactions(folder / "index.sqlite")
        self._swept: list[str] = []
        self._swept_lock = threading.Lock()
        # Buckets that were there when they were last looked at.
        self._seen_buckets: set[str] = set()
        self._reserve = Reserve(folder / "reserve")
        _live.add(self)
        try:
            self.collect_garbage()
        except Unavailable:
            pass  # A full disk: what is there can still be read, and removed.

    def ensure_bucket(self, name: str, workspace_id: str = "") -> Bucket:
        """The bucket, made if it is not there yet. The platform's own buckets may be named here."""
        if not _INTERNAL_BUCKET.fullmatch(name):
            check_bucket_name(name)
        with self._transactions.read() as connection:
            try:
                return bucket_rows.find_bucket(connection, name)[1]
            except NotFound:
                pass
        bucket = Bucket(name, workspace_id, time.time())
        return self._write(lambda c: bucket_rows.insert_bucket(c, bucket, may_exist=True))

    def bucket(self, name: str) -> Bucket:
        """What is known of a bucket."""
        return self._known_bucket(name)[1]

    def _known_bucket(self, name: str) -> tuple[int, Bucket]:
        return self._transactions.buckets.find(
            name, lambda: self._read(name, lambda c: bucket_rows.find_bucket(c, name))
        )

    # --- upkeep ---

    def collect_garbage(self) -> int:
        """Remove what processes that were killed left, and uploads that were given up; tells how many blobs."""
        self._drop_stale_uploads(time.time() - _ABANDONED_SECONDS)
        if self._swept:
            self._write(lambda c: None)
        with self._transactions.read() as connection:

            def unknown(blobs: list[str]) -> set[str]:
                return set(garbage.unknown_blobs(connection, blobs))

            removed = self._blobs.sweep_dead_sessions(unknown)
            # The row comes before the file and goes before it: a file without a row is always left over.
            files = self._part_files.names()
            self._part_files.remove(multipart_rows.unknown_uploads(connection, files))
        while True:
            with self._transactions.read() as connection:
                blobs = garbage.pending_garbage(connection, 1000)
            if not blobs:
                return removed
            with explained_errors():
                self._blobs.remove(blobs)
            removed += len(blobs)
            self._write(partial(garbage.forget_garbage, blobs=blobs))

    def verify(
        self, *, quarantine: bool = False, on_progress: Callable[[int, int], None] | None = None
    ) -> CheckReport:
        """Read every object's bytes again; with `quarantine`, damaged files are set aside and read no more.

        `on_progress` is told the objects and bytes that were checked so far.
        """
        with explained_errors():
            return check_store(
                self._transactions, self._blobs, quarantine=quarantine, on_progress=on_progress
            )

    def usage(self, workspace_id: str) -> Usage:
        """What a workspace keeps, and how much it may."""
        with self._transactions.read() as connection:
            return quotas.read_usage(connection, workspace_id)

    def total_usage(self) -> Usage:
        """What the whole store keeps, the platform's own buckets included."""
        with self._transactions.read() as connection:
            found = connection.execute("SELECT coalesce(sum(bytes), 0), coalesce(sum(objects), 0) FROM usage")
            return Usage(*found.fetchone())

    def set_quota(self, workspace_id: str, size: int | None, objects: int | None) -> None:
        """Limit a workspace; an empty name limits all that have no limit of their own."""
        self._write(lambda c: quotas.write_quota(c, workspace_id, size, objects))

    def recount(self) -> None:
        """Count again what every bucket holds: an older version of the platform may have written beside us."""
        self._write(quotas.recount)

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

    def _write(
        self,
        work: Callable[[sqlite3.Connection], T],
        folders: Iterable[Path] = (),
        *,
        keeps_buckets: bool = False,
    ) -> T:
        with self._swept_lock:
            swept, self._swept = self._swept, []

        def all_work(connection: sqlite3.Connection) -> T:
            # Rides along with a write that is made anyway: striking a removed blob needs no commit of its own.
            garbage.forget_garbage(connection, swept)
            return work(connection)

        try:
            return self._transactions.write(all_work, folders=folders, keeps_buckets=keeps_buckets)
        except BaseException:
            with self._swept_lock:
                self._swept.extend(swept)
            raise

    def _drop_stale_uploads(self, before: float) -> None:
        while True:
            with self._transactions.read() as connection:
                names = multipart_rows.stale_uploads(connection, before, 100)
            if not names:
                return
            self._write(partial(multipart_rows.drop_uploads, upload_ids=names))

    def _commit_rows(
        self, wanted: Sequence[Wanted], folders: Iterable[Path]
    ) -> list[ObjectInfo | TrainshedError]:
        results = self._write(lambda connection: put_objects(connection, wanted), folders, keeps_buckets=True)
        self._remove([blob for result in results if isinstance(result, tuple) for blob in result[1]])
        return [result[0] if isinstance(result, tuple) else result for result in results]

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

    def _find(self, bucket: str, key: str, version_id: str = "") -> index.Row:
        check_key(key)
        number, _ = self._known_bucket(bucket)
        return self._read(bucket, lambda c: index.find_object(c, bucket, key, version_id, number))

    def _open(self, bucket: str, key: str, version_id: str = "") -> tuple[ObjectInfo, int]:
        missing = ""
        while True:
            row = self._find(bucket, key, version_id)
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
