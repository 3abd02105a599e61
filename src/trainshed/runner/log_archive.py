"""Moves what ranks wrote from their spool files to the store, piece by piece, while they run.

A piece is an object named by its offset. Behind it a hole is punched into the spool, so that a log of any
length takes little room on the node, while every byte keeps its offset. Pieces never overlap: after a crash
the next runner goes on behind the last piece that the store has.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.model.masking import Masker

if TYPE_CHECKING:
    from trainshed.store.object_store import ObjectInfo, ObjectStore

__all__ = ["ARCHIVE_BUCKET", "LogArchive", "archive_prefix", "punch_hole"]

ARCHIVE_BUCKET = ".jobs"
_CHUNK = 1 << 20
_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2
# Holes are made of whole blocks.
_BLOCK = 4096


def archive_prefix(job_id: str, attempt: int, node_index: int) -> str:
    """Where the archive of one node of one attempt lies in the archive's bucket."""
    return f"{job_id}/attempt-{attempt}/node-{node_index}/"


class LogArchive:
    """The archive of one node's logs.

    `is_new` says that nothing can be there yet, so that nobody has to look: an attempt's node runs once.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        segment_bytes: int,
        secrets: list[str],
        *,
        is_new: bool = False,
    ) -> None:
        self._is_new = is_new
        self._store = store
        self._prefix = prefix
        self._segment = segment_bytes
        self._secrets = secrets
        self._shipped: dict[str, int] = {}

    def ship(self, stream: str, spool: Path, *, final: bool = False) -> None:
        """Archive all full pieces of a spool, and at the end the rest as well."""
        try:
            descriptor = os.open(spool, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return
        try:
            size = os.fstat(descriptor).st_size
            start = self._position(stream)
            while size - start >= self._segment or (final and size > start):
                length = min(self._segment, size - start)
                start += self._put(stream, descriptor, start, length, last=final and start + length == size)
                self._shipped[stream] = start
                punch_hole(descriptor, start)
        finally:
            os.close(descriptor)

    def export(self, stream: str, bucket: str, key: str) -> None:
        """Write the whole archived log of a stream as one object, for a destination that the user named."""
        self._store.put(bucket, key, self._pieces(stream), content_type="text/plain; charset=utf-8")

    def export_live(self, stream: str, spool: Path, bucket: str, key: str) -> None:
        """Write the log of a stream as far as it has come: what is archived, and what still lies in the spool.

        May run in another thread than `ship`.
        """
        self._store.put(bucket, key, self._read_live(stream, spool), content_type="text/plain; charset=utf-8")

    def size(self, stream: str) -> int:
        """How many bytes of a stream are archived."""
        return self._position(stream)

    def _read_live(self, stream: str, spool: Path) -> Iterator[bytes]:
        try:
            descriptor = os.open(spool, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return
        try:
            end = os.fstat(descriptor).st_size
            # So many bytes are told; so many more are read and held back, because a secret may begin there.
            told = held = 0
            masker = Masker(self._secrets)
            while told + held < end:
                position = self._position(stream)
                if position > told:
                    for data in self._pieces(stream, told):
                        told += len(data)
                        yield data
                    if told < position:
                        return  # the archive was taken away: the job was deleted
                    held, masker = 0, Masker(self._secrets)
                    continue
                data = os.pread(descriptor, min(_CHUNK, end - told - held), told + held)
                if self._position(stream) > told:
                    continue  # archived at this very moment: what was read may be the hole behind it
                if not data:
                    break
                masked = masker.feed(data)
                held += len(data) - len(masked)
                told += len(masked)
                yield masked
            yield masker.finish()
        finally:
            os.close(descriptor)

    def _position(self, stream: str) -> int:
        if stream not in self._shipped and self._is_new:
            return 0
        if stream not in self._shipped:
            self._shipped[stream] = max(
                (int(info.key.rsplit("/", 1)[1]) + info.size for info in self._segments(stream)), default=0
            )
        return self._shipped[stream]

    def _segments(self, stream: str) -> Iterator[ObjectInfo]:
        return self._store.walk(ARCHIVE_BUCKET, f"{self._prefix}{stream}/")

    def _put(self, stream: str, descriptor: int, start: int, length: int, *, last: bool) -> int:
        """Archive one piece and return its length.

        A piece ends before bytes that may be the beginning of a secret: they open the next piece, where
        the whole secret can be seen.
        """
        masker = Masker(self._secrets)

        def read() -> Iterator[bytes]:
            position, end = start, start + length
            while position < end:
                data = os.pread(descriptor, min(_CHUNK, end - position), position)
                if not data:
                    # The job shortened its own log; zeros keep the offsets of what follows true.
                    data = bytes(min(_CHUNK, end - position))
                position += len(data)
                yield masker.feed(data)
            if last:
                yield masker.finish()

        info = self._store.put(
            ARCHIVE_BUCKET,
            f"{self._prefix}{stream}/{start:016d}",
            read(),
            content_type="text/plain; charset=utf-8",
        )
        return info.size

    def _pieces(self, stream: str, start: int = 0) -> Iterator[bytes]:
        """The archived bytes from `start` on."""
        for info in self._segments(stream):
            skip = max(0, start - int(info.key.rsplit("/", 1)[1]))
            if skip >= info.size:
                continue
            with self._store.open(ARCHIVE_BUCKET, info.key, skip) as piece:
                while data := piece.read(_CHUNK):
                    yield data


def punch_hole(descriptor: int, end: int) -> None:
    """Give back the blocks before `end`; a file system that cannot do it only keeps them longer."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate(
        ctypes.c_int(descriptor),
        ctypes.c_int(_FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE),
        ctypes.c_longlong(0),
        ctypes.c_longlong(end // _BLOCK * _BLOCK),
    )
