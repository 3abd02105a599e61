"""The bytes of one log, from the archive in the store and from the spool on the machine, as one whole."""

from __future__ import annotations

import bisect
import os
import stat
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from trainshed.model.home import RunFolder
from trainshed.services.platform import Platform
from trainshed.store.object_store import ObjectStore

__all__ = ["ARCHIVE_BUCKET", "LogSource"]

ARCHIVE_BUCKET = ".jobs"
_MOST_CACHED = 512


@dataclass(frozen=True)
class _Segments:
    """The archived pieces of a log: where each begins, and where the last one ends."""

    starts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        return self.starts[-1] + self.sizes[-1] if self.starts else 0


class _SegmentCache:
    """Remembers archived pieces: they never change, so only what is behind the last one is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], _Segments] = OrderedDict()

    def load(self, store: ObjectStore, home: str, prefix: str) -> _Segments:
        with self._lock:
            known = self._known.get((home, prefix), _Segments())
        starts, sizes = list(known.starts), list(known.sizes)
        after = f"{prefix}{starts[-1]:016d}" if starts else ""
        while True:
            page = store.list(ARCHIVE_BUCKET, prefix, after=after)
            for info in page.objects:
                name = info.key.removeprefix(prefix)
                if name.isdigit() and info.size:
                    starts.append(int(name))
                    sizes.append(info.size)
            if not page.next_after:
                break
            after = page.next_after
        found = _Segments(tuple(starts), tuple(sizes))
        with self._lock:
            self._known[(home, prefix)] = found
            self._known.move_to_end((home, prefix))
            while len(self._known) > _MOST_CACHED:
                self._known.popitem(last=False)
        return found


_cache = _SegmentCache()


class LogSource:
    """One log of one node of one attempt. `stream` is `rank-<n>`, `platform` or `files/<name>`."""

    def __init__(self, platform: Platform, job_id: str, attempt: int, node_index: int, stream: str) -> None:
        self._store = platform.store
        self._home = str(platform.home.path)
        self._prefix = f"{job_id}/attempt-{attempt}/node-{node_index}/{stream}/"
        self._spool = _spool_path(platform.home.run_folder(job_id, attempt, node_index), stream)

    def size(self) -> int:
        """How many bytes the log has at this moment."""
        spool = 0
        descriptor = self._open_spool()
        if descriptor is not None:
            spool = os.fstat(descriptor).st_size
            os.close(descriptor)
        return max(spool, self._segments().end)

    def read(self, start: int, length: int) -> bytes:
        """Up to `length` bytes from an offset; fewer only at the present end."""
        pieces: list[bytes] = []
        position, end = start, start + length
        segments = self._segments()
        while position < end:
            if position < segments.end:
                piece = self._read_archived(segments, position, end - position)
            else:
                piece = self._read_spool(position, end - position)
                # The runner archives a piece and then punches a hole where it was: bytes that were read
                # from the spool count only if they are not archived even now.
                segments = self._segments()
                if position < segments.end:
                    continue
            if not piece:
                break
            pieces.append(piece)
            position += len(piece)
        return b"".join(pieces)

    def _segments(self) -> _Segments:
        return _cache.load(self._store, self._home, self._prefix)

    def _read_archived(self, segments: _Segments, position: int, length: int) -> bytes:
        index = bisect.bisect_right(segments.starts, position) - 1
        within = position - segments.starts[index]
        if index < 0 or within >= segments.sizes[index]:
            return b""
        count = min(length, segments.sizes[index] - within)
        key = f"{self._prefix}{segments.starts[index]:016d}"
        with self._store.open(ARCHIVE_BUCKET, key, within, count) as file:
            return file.read(count)

    def _read_spool(self, position: int, length: int) -> bytes:
        descriptor = self._open_spool()
        if descriptor is None:
            return b""
        try:
            return os.pread(descriptor, length, position)
        finally:
            os.close(descriptor)

    def _open_spool(self) -> int | None:
        try:
            descriptor = os.open(self._spool, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return descriptor


def _spool_path(folder: RunFolder, stream: str) -> Path:
    if stream == "platform":
        return folder.platform_log
    if stream.startswith("files/"):
        return folder.file_log(stream.removeprefix("files/"))
    return folder.rank_log(int(stream.removeprefix("rank-")))
