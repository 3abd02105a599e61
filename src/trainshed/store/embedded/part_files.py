"""The files that multipart uploads grow in: each part is written straight to its final place.

Clients cut an object into parts of one size, so the first part tells where all others belong: part *n* goes to
slot *n* of one file, whatever the order of arrival, and completing the upload only gives that file its name
among the blobs. A slot is written by one writer, once; what does not fit (another size, a part that is sent
again, a length not told beforehand) becomes a blob of its own, and then completing means copying.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from trainshed.durable import sync_folder
from trainshed.model.errors import InvalidInput
from trainshed.store.embedded.transactions import explain_os_error, explained_errors

__all__ = ["PartFiles", "SlotWriter"]


class SlotWriter:
    """A part that is being written to its slot."""

    def __init__(self, file: int, room: int, *, with_sha256: bool, give_back: Callable[[], None]) -> None:
        self._file = file
        self._room = room
        self._give_back = give_back
        self.id = ""
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256() if with_sha256 else None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes within the slot."""
        view = memoryview(data).cast("B")
        if self.size + len(view) > self._room:
            # One byte more would be the next part's first one.
            self.discard()
            raise InvalidInput(
                f"The part is longer than the {self._room} bytes that were announced.",
                hint="Send it again with its true length.",
                code="incomplete_body",
            )
        self._md5.update(view)
        if self._sha256 is not None:
            self._sha256.update(view)
        self.size += len(view)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self.discard()
            raise explain_os_error(error) from error

    @property
    def md5(self) -> str:
        """The checksum of what was written so far."""
        return self._md5.hexdigest()

    @property
    def sha256(self) -> str:
        """The same with SHA-256, or empty when that was not asked for."""
        return self._sha256.hexdigest() if self._sha256 is not None else ""

    def publish(self) -> list[Path]:
        """Make the bytes durable."""
        try:
            os.fsync(self._file)
        except OSError as error:
            self.discard()
            raise explain_os_error(error) from error
        return []

    def settle(self) -> None:
        """Nobody writes to this slot again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def discard(self) -> None:
        """Give the slot to whoever sends the part again."""
        if self._file >= 0:
            self.settle()
            self._give_back()


class PartFiles:
    """The folder of the files of unfinished uploads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "uploads"
        with explained_errors():
            self._folder.mkdir(mode=0o700, exist_ok=True)

    def path(self, upload_id: str) -> Path:
        """Where an upload's slots lie."""
        return self._folder / upload_id

    def open_slot(self, upload_id: str, offset: int) -> int:
        """The upload's file, open for writing at a slot; made, with a durable name, by the first one."""
        path = self.path(upload_id)
        with explained_errors():
            try:
                file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                sync_folder(self._folder)
            os.lseek(file, offset, os.SEEK_SET)
        return file

    def remove(self, upload_ids: Iterable[str]) -> None:
        """Remove the files of uploads that are over."""
        for upload_id in upload_ids:
            self.path(upload_id).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """The uploads that have a file."""
        return os.listdir(self._folder)
