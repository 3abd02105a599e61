"""Read-only trees of input snapshots, kept on a machine so that the second job with an input starts at once.

A tree is named by the digest of what it holds and never changes; on the store's own machine its files are
hard links to the blobs. A job never sees a tree itself, only a view of it whose changes go elsewhere.

    <digest>/files/    the files; facts.json beside them tells where they came from
    <digest>.lock      held (shared) by whoever uses the tree; its time is that of the last use
    new-<random>/      a tree that is being built, or is about to be removed; new-<random>.lock is held meanwhile
    place-<hash>.lock  held while the tree of one place of the store is built, so that it is built once
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from trainshed.model.errors import NotFound
from trainshed.store.object_store import ObjectStore
from trainshed.store.snapshot import SnapshotHash, Vanished, open_snapshot
from trainshed.store.tree_filling import Progress, TreeFacts, fill_tree

__all__ = ["StagedTree", "TreeCache", "TreeFacts", "measure"]

_TRIES = 5
_POLL = 0.05
_DIGEST = re.compile(r"[0-9a-f]{64}")


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
            facts = fill_tree(snapshot, files, TreeFacts("", bucket, key, 0, 0), report)
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
