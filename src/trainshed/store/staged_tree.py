"""Read-only trees of input snapshots, kept on a machine so that the second job with an input starts at once.

A tree is named by the digest of what it holds and never changes; on the store's own machine its files are
hard links to the blobs. A job never sees a tree itself, only a view of it whose changes go elsewhere.

    <digest>/files/    the files; facts.json beside them tells where they came from
    <digest>.lock      held (shared) by whoever uses the tree; its time is that of the last use
    new-<random>/      a tree that is being built, or is about to be removed; new-<random>.lock is held meanwhile
    place-<hash>.lock  held while the tree of one place of the store is built, so that it is built once
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from trainshed.model.errors import NotFound
from trainshed.store.folder_tree import safe_parts
from trainshed.store.object_store import ObjectStore
from trainshed.store.snapshot import Snapshot, SnapshotHash, SnapshotObject, Vanished, open_snapshot

__all__ = ["StagedTree", "TreeCache", "TreeFacts", "measure"]

# Called with the numbers of files and bytes so far; ends the work by raising.
Progress = Callable[[int, int], None]

_TRIES = 5
_POLL = 0.05
_DIGEST = re.compile(r"[0-9a-f]{64}")
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


class StagedTree:
    """A tree in use: nobody removes it before `close`, or before the process ends."""

    def __init__(self, folder: Path, facts: TreeFacts, lock: int, *, was_built: bool) -> None:
        self.folder = folder
        self.facts = facts
        # Whether this use had to build it.
        self.was_built = was_built
        self._lock = lock

    def close(self) -> None:
        """The tree is not used any more."""
        if self._lock >= 0:
            os.utime(self._lock)
            os.close(self._lock)
            self._lock = -1


def measure(store: ObjectStore, bucket: str, key: str) -> TreeFacts:
    """The digest, the number and the size of the files of a folder or object, of one moment."""
    snapshot = open_snapshot(store, bucket, key)
    digest, files, size = SnapshotHash(snapshot.place), 0, 0
    with snapshot.read() as objects:
        for item in objects:
            digest.add(item)
            files += 1
            size += item.size
    if not files and key:
        raise NotFound(
            f"There is no '{key}' in the bucket '{bucket}'.",
            hint=f"See what is there: trainshed obs ls obs://{bucket}/",
            code="no_such_key",
        )
    return TreeFacts(digest.hexdigest(), bucket, key, files, size)


class TreeCache:
    """The trees of a machine, shared by all runners on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def obtain(
        self, store: ObjectStore, bucket: str, key: str, *, on_progress: Progress | None = None
    ) -> StagedTree | None:
        """The tree of what a folder or object is now, built if it is not there yet.

        None when the folder changes so fast that no moment of it can be caught.
        """
        found = self._claim(measure(store, bucket, key).digest)
        if found is not None:
            return found
        report = on_progress or (lambda files, size: None)
        place = sha256(f"{bucket}/{key}".encode()).hexdigest()[:32]
        with self._alone(place, lambda: report(0, 0)):
            for _ in range(_TRIES):
                # Somebody else may have built it while we waited.
                found = self._claim(measure(store, bucket, key).digest)
                if found is not None:
                    return found
                try:
                    built = self._build(store, bucket, key, report)
                except Vanished:
                    continue
                self._evict_others(built.facts)
                return built
        return None

    def sweep(
        self, *, unused_for: float, largest: int, is_current: Callable[[TreeFacts], bool] | None = None
    ) -> int:
        """Remove what dead processes left, trees that were not used for some seconds or are out of date, and
        the least used ones until those left keep at most `largest` bytes for themselves; tells how many."""
        self._clear_unfinished()
        now, removed = time.time(), 0
        kept: list[tuple[float, TreeFacts]] = []
        for facts, used in self._trees():
            is_old = now - used > unused_for
            if (is_old or (is_current is not None and not is_current(facts))) and self._evict(facts.digest):
                removed += 1
            else:
                kept.append((used, facts))
        total = sum(facts.copied for _, facts in kept)
        for _, facts in sorted(kept, key=lambda pair: pair[0]):
            if total <= largest:
                break
            if facts.copied and self._evict(facts.digest):
                total -= facts.copied
                removed += 1
        return removed

    # --- using ---

    def _claim(self, digest: str) -> StagedTree | None:
        lock = self._lock_tree(digest)
        facts = self._read_facts(digest)
        if facts is None:
            os.close(lock)
            return None
        os.utime(lock)
        return StagedTree(self._folder / digest / "files", facts, lock, was_built=False)

    def _read_facts(self, digest: str) -> TreeFacts | None:
        try:
            return TreeFacts(**json.loads((self._folder / digest / "facts.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def _lock_tree(self, digest: str) -> int:
        """The tree's lock, shared with others that use the tree; whoever removes it holds it but for a moment."""
        path = self._folder / f"{digest}.lock"
        while True:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                return lock
            os.close(lock)  # Removed between opening and locking, with its tree.

    # --- building ---

    @contextmanager
    def _alone(self, place: str, wait: Callable[[], None]) -> Iterator[None]:
        path = self._folder / f"place-{place}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    wait()
                    time.sleep(_POLL)
            yield
        finally:
            os.close(lock)

    def _build(self, store: ObjectStore, bucket: str, key: str, report: Progress) -> StagedTree:
        snapshot = open_snapshot(store, bucket, key)
        with self._new_folder() as temporary:
            files = temporary / "files"
            files.mkdir()
            files.chmod(0o755)
            facts = _fill(snapshot, files, TreeFacts("", bucket, key, 0, 0), report)
            (temporary / "facts.json").write_text(json.dumps(asdict(facts)))
            lock = self._lock_tree(facts.digest)
            try:
                temporary.rename(self._folder / facts.digest)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    os.close(lock)
                    raise
                # The tree of another place with the same content was faster; it holds the same.
            return StagedTree(self._folder / facts.digest / "files", facts, lock, was_built=True)

    @contextmanager
    def _new_folder(self) -> Iterator[Path]:
        folder = self._folder / f"new-{os.urandom(8).hex()}"
        path = folder.with_name(f"{folder.name}.lock")
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            path.unlink(missing_ok=True)
            os.close(lock)

    # --- removing ---

    def _trees(self) -> Iterator[tuple[TreeFacts, float]]:
        for path in sorted(self._folder.glob("*.lock")):
            digest = path.name.removesuffix(".lock")
            if not _DIGEST.fullmatch(digest):
                continue
            try:
                used = path.stat().st_mtime
            except FileNotFoundError:
                continue
            facts = self._read_facts(digest)
            # Without facts: asked for and never built, or killed in the middle of a removal.
            yield (facts, used) if facts else (TreeFacts(digest, "", "", 0, 0), 0.0)

    def _evict_others(self, facts: TreeFacts) -> None:
        """Remove older trees of the same place that nobody uses: what they hold is out of date."""
        for other, _ in list(self._trees()):
            if (other.bucket, other.key) == (facts.bucket, facts.key) and other.digest != facts.digest:
                self._evict(other.digest)

    def _evict(self, digest: str) -> bool:
        path, tree = self._folder / f"{digest}.lock", self._folder / digest
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(lock).st_nlink:
                return False
            with self._new_folder() as trash:
                try:
                    tree.rename(trash / "tree")
                except FileNotFoundError:
                    pass
                # While the lock is held: whoever waits for it sees that its file is gone, and makes another.
                path.unlink()
                fcntl.flock(lock, fcntl.LOCK_UN)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(lock)

    def _clear_unfinished(self) -> None:
        for path in self._folder.glob("new-*.lock"):
            try:
                lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder = path.with_name(path.name.removesuffix(".lock"))
                if not folder.is_dir() and time.time() - os.fstat(lock).st_mtime < 60:
                    continue  # Perhaps just made, and not locked yet by its maker.
                shutil.rmtree(folder, ignore_errors=True)
                path.unlink(missing_ok=True)
            except BlockingIOError:
                continue
            finally:
                os.close(lock)


def _fill(snapshot: Snapshot, root: Path, facts: TreeFacts, report: Progress) -> TreeFacts:
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
