"""Fills a new folder with the files of a snapshot: by links where the store is near, by fetching where it is far."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trainshed.store.folder_tree import safe_parts
from trainshed.store.snapshot import Snapshot, SnapshotHash, SnapshotObject

__all__ = ["Progress", "TreeFacts", "fill_tree"]

# Called with the numbers of files and bytes so far; ends the work by raising.
Progress = Callable[[int, int], None]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class TreeFacts:
    """What a tree holds and where it came from. Files that cannot have a name on disk are only counted."""

    digest: str
    bucket: str
    key: str
    files: int
    bytes: int
    # How many of the bytes the tree keeps for itself, because they could not be shared with the store.
    copied: int = 0
    skipped: int = 0


def fill_tree(snapshot: Snapshot, root: Path, facts: TreeFacts, report: Progress) -> TreeFacts:
    """Put all files of a snapshot below a new folder that nobody else knows."""
    digest = SnapshotHash(snapshot.place)
    skipped = 0
    folders = _OpenFolders(root)
    names = _Names()
    hands = _Hands(snapshot, report)
    try:
        with snapshot.read() as objects:
            for item in objects:
                digest.add(item)
                parts = names.parts_of(item)
                if parts is None:
                    skipped += 1
                elif item.path.endswith("/") or not parts:
                    folders.enter(parts)
                else:
                    hands.put(item, parts[-1], folders.enter(parts[:-1]))
        hands.finish()
    finally:
        hands.close()
        folders.close()
    if hands.copied:
        # Links are durable with the folders that hold them; bytes are not, unless they are asked to be.
        _sync_file_system(root)
    return TreeFacts(
        digest.hexdigest(), facts.bucket, facts.key, hands.files, hands.size, hands.copied, skipped
    )


class _Hands:
    """Puts objects into their folders, several at once where the store is far away; counts what was done."""

    def __init__(self, snapshot: Snapshot, report: Progress) -> None:
        self._snapshot = snapshot
        self._report = report
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(snapshot.hands, "staging") if snapshot.hands > 1 else None
        self._under_way: deque[Future[None]] = deque()
        self.files = self.size = self.copied = 0

    def put(self, item: SnapshotObject, name: str, folder: int) -> None:
        """Make an object's file in an open folder, now or soon. Raises what an earlier one met."""
        if self._threads is None:
            self._put(item, name, folder)
            return
        while len(self._under_way) >= 2 * self._snapshot.hands:
            self._under_way.popleft().result()
        # The folder may be closed before a thread comes to it.
        own = os.dup(folder)

        def work() -> None:
            try:
                self._put(item, name, own)
            finally:
                os.close(own)

        self._under_way.append(self._threads.submit(work))

    def finish(self) -> None:
        """Wait for all."""
        while self._under_way:
            self._under_way.popleft().result()

    def close(self) -> None:
        """Wait for those under way, whatever becomes of them."""
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    def _put(self, item: SnapshotObject, name: str, folder: int) -> None:
        def tick(count: int) -> None:
            self._report(self.files, self.size + count)

        was_copied = self._snapshot.put(item, name, folder, tick)
        with self._lock:
            self.files += 1
            self.size += item.size
            self.copied += item.size if was_copied else 0
        self._report(self.files, self.size)


class _Names:
    """Tells which objects can be files: what lies below a key that is itself a file (`a/b` beside `a`) cannot."""

    def __init__(self) -> None:
        self._files: list[str] = []

    def parts_of(self, item: SnapshotObject) -> list[str] | None:
        """The parts of the object's path below the tree's root, or None when it cannot be there."""
        path = item.path
        # Keys come in order, so everything between `a` and `a/...` starts with `a`: a short stack is enough.
        while self._files and not path.startswith(self._files[-1]):
            self._files.pop()
        if any(path.startswith(file + "/") for file in self._files):
            return None
        if not path:
            return []
        parts = safe_parts(path.removesuffix("/"))
        if parts is None or (path.endswith("/") and item.size):
            return None
        if not path.endswith("/"):
            self._files.append(path)
        return parts


class _OpenFolders:
    """The chain of folders that leads to the place where files are being made."""

    def __init__(self, root: Path) -> None:
        self._parts: list[str] = []
        self._open = [os.open(root, _FOLDER)]

    def enter(self, parts: list[str]) -> int:
        """A folder below the root, made if it is not there."""
        common = 0
        while common < min(len(parts), len(self._parts)) and parts[common] == self._parts[common]:
            common += 1
        while len(self._parts) > common:
            self._parts.pop()
            os.close(self._open.pop())
        for part in parts[common:]:
            try:
                os.mkdir(part, 0o755, dir_fd=self._open[-1])
            except FileExistsError:
                pass
            folder = os.open(part, _FOLDER, dir_fd=self._open[-1])
            os.fchmod(folder, 0o755)
            self._open.append(folder)
            self._parts.append(part)
        return self._open[-1]

    def close(self) -> None:
        """Close all of them."""
        for folder in self._open:
            os.close(folder)


def _sync_file_system(folder: Path) -> None:
    descriptor = os.open(folder, _FOLDER)
    try:
        ctypes.CDLL(None).syncfs(descriptor)
    finally:
        os.close(descriptor)
