"""What a transfer has done so far, counted by many threads, and told to whoever watches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Skipped", "Tally", "TransferSummary"]

# Called with the number of files and of bytes moved so far.
Progress = Callable[[int, int], None]

_SKIPPED_LISTED = 1000


@dataclass(frozen=True)
class Skipped:
    """Something that was left out of a transfer, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class TransferSummary:
    """What a transfer did. At most a thousand of the skipped are listed; all are counted."""

    files: int = 0
    bytes: int = 0
    folders: int = 0
    skipped: tuple[Skipped, ...] = ()
    skipped_count: int = 0
    # Files that were in the store already, with the same bytes; not among `files`.
    unchanged: int = 0


class Tally:
    """Counts what the threads do."""

    def __init__(self, on_progress: Progress | None) -> None:
        self._lock = threading.Lock()
        self._on_progress = on_progress
        self._files = self._bytes = self._folders = self._skipped_count = self._unchanged = 0
        self._under_way = 0
        self._skipped: list[Skipped] = []

    def add_file(self, size: int, already_told: int = 0) -> None:
        with self._lock:
            self._files += 1
            self._bytes += size
            self._under_way -= already_told
            self._tell()

    def add_bytes(self, count: int) -> None:
        """Bytes of a large file, before the whole of it is there."""
        with self._lock:
            self._under_way += count
            self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._files, self._bytes + self._under_way)

    def add_unchanged(self) -> None:
        with self._lock:
            self._unchanged += 1
            self._tell()

    def add_folder(self) -> None:
        with self._lock:
            self._folders += 1

    def skip(self, path: str, reason: str) -> None:
        with self._lock:
            self._skipped_count += 1
            if len(self._skipped) < _SKIPPED_LISTED:
                self._skipped.append(Skipped(path, reason))

    def summary(self) -> TransferSummary:
        skipped = tuple(sorted(self._skipped, key=lambda skipped: skipped.path))
        return TransferSummary(
            self._files, self._bytes, self._folders, skipped, self._skipped_count, self._unchanged
        )
