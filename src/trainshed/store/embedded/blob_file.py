"""A blob while it is made: written, hashed, synced and named, or discarded with all its names."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.store.embedded.transactions import explain_os_error

if TYPE_CHECKING:
    from trainshed.store.embedded.blobs import Blobs

__all__ = ["BlobFile", "BlobWriter"]

# Every so many bytes of an object the room left on the disk is looked at, and this much of it is kept.
_ROOM_STEP = 4 << 20
_ROOM_KEPT = 48 << 20


class BlobFile:
    """A file on its way to become a blob; without bytes there is none."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._file = -1
        self._source = ""
        self.id = ""
        # A file that is made here is read-only from the start; one that lies elsewhere has to become so.
        self._is_ours = False
        # The folders that hold its name, if it has it already.
        self._folders: list[Path] = []
        # Set when somebody has synced it together with others.
        self._is_synced = False
        self._sync_error: OSError | None = None

    def create(self) -> int:
        """Begin a new file; returns its descriptor, open for writing."""
        self.id, self._source, self._file = self._blobs.create()
        self._is_ours = True
        return self._file

    def adopt(self, path: Path, size: int | None) -> None:
        """Take a file that lies elsewhere in the store, and that nobody else writes to; cut it to size."""
        self.id, self._source = self._blobs.adopt(path)
        self._file = os.open(self._source, os.O_RDONLY | os.O_CLOEXEC)
        if size is not None and os.fstat(self._file).st_size != size:
            os.truncate(self._source, size)

    def reopen(self, position: int) -> int:
        """Open an adopted file for writing from a position on; returns its descriptor."""
        os.fchmod(self._file, 0o600)
        os.close(self._file)
        self._file = os.open(self._source, os.O_WRONLY | os.O_CLOEXEC)
        # What an append that was killed left behind the end.
        os.ftruncate(self._file, position)
        os.lseek(self._file, position, os.SEEK_SET)
        return self._file

    def publish(self) -> list[Path]:
        """Give the file its place among the blobs; returns the folders to sync before the index row is."""
        if not self.id:
            return []
        try:
            if not self._is_ours:
                os.fchmod(self._file, 0o400)
            if self._sync_error is not None:
                raise self._sync_error
            if not self._is_synced:
                os.fsync(self._file)
            os.close(self._file)
            self._file = -1
            return self._folders or self._blobs.publish(self.id, self._source)
        except OSError as error:
            self.discard()
            raise explain_os_error(error) from error

    def name_early(self) -> None:
        """Do now what `publish` does with names: whoever has several to publish then only waits for the disk.

        Until the index row is committed, the incoming name tells of the file, whatever else it is called.
        """
        if self.id:
            try:
                self._folders = self._blobs.publish(self.id, self._source)
            except OSError as error:
                self.discard()
                raise explain_os_error(error) from error

    @property
    def descriptor(self) -> int:
        """The open file, for `group_sync`; -1 if there is none."""
        return self._file

    def note_sync(self, error: OSError | None) -> None:
        """It was synced together with others, or that failed: `publish` need not do it again."""
        self._is_synced, self._sync_error = True, error

    @property
    def early_folders(self) -> list[Path]:
        """The folders that hold the name that it was given early."""
        return self._folders

    def settle(self) -> None:
        """Remove the incoming name, after the index row was committed."""
        if self.id:
            self._blobs.forget_source(self._source)

    def discard(self) -> None:
        """Leave nothing behind."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self.id:
            blob, self.id = self.id, ""
            # The blob's own name goes first: a crash in between leaves the incoming one to tell of it.
            self._blobs.remove([blob])
            self._blobs.forget_source(self._source)


def _require_room(file: int) -> None:
    """A large object may not take the last room of a disk: databases and reports must go on being written."""
    found = os.fstatvfs(file)
    if found.f_bavail * found.f_frsize < _ROOM_KEPT:
        raise OSError(errno.ENOSPC, "the last room of the disk is kept")


class BlobWriter(BlobFile):
    """A blob that is being written: counts and hashes what passes."""

    def __init__(self, blobs: Blobs, *, with_sha256: bool) -> None:
        super().__init__(blobs)
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256() if with_sha256 else None
        # Written, but not hashed yet.
        self._rest: memoryview | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; on a disk error the file is discarded."""
        view = memoryview(data).cast("B")
        self._hash(view)
        self._append(view)

    def write_last(self, data: bytes | bytearray | memoryview) -> None:
        """The same for the last bytes, if they stay as they are: they are hashed by `hash_rest`, or when asked for."""
        self._rest = memoryview(data).cast("B")
        self._append(self._rest)

    def hash_rest(self) -> None:
        """Hash what was not hashed yet."""
        rest, self._rest = self._rest, None
        if rest is not None:
            self._hash(rest)

    def _hash(self, view: memoryview) -> None:
        self._md5.update(view)
        if self._sha256 is not None:
            self._sha256.update(view)

    def _append(self, view: memoryview) -> None:
        if not view:
            return
        try:
            if not self.id:
                # An empty object has no file at all.
                self.create()
            before, self.size = self.size, self.size + len(view)
            if before // _ROOM_STEP != self.size // _ROOM_STEP:
                _require_room(self._file)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self.discard()
            raise explain_os_error(error) from error

    @property
    def md5(self) -> str:
        """The checksum of what was written so far."""
        self.hash_rest()
        return self._md5.hexdigest()

    @property
    def sha256(self) -> str:
        """The same with SHA-256, or empty when that was not asked for."""
        self.hash_rest()
        return self._sha256.hexdigest() if self._sha256 is not None else ""
