"""Buckets that were looked up a moment ago, good as long as nobody has changed anything.

Every request asks for its bucket, and most ask for the same one. What is remembered here counts only while the index
is as it was (`commit_watch`). Our own commits of objects change it, too, but no bucket: over those it is carried on,
if nobody else has committed in between.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from trainshed.store.embedded.commit_watch import CommitWatch, count_commits
from trainshed.store.records import Bucket

__all__ = ["BucketMemory"]

_MOST = 1024
_Known = tuple[int, Bucket]


class BucketMemory:
    """What one process remembers of the buckets of one index."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._watch: CommitWatch | None = None
        self._is_blind = False
        # The state of the index for which the buckets are known.
        self._known: tuple[bytes, dict[str, _Known]] = (b"", {})

    def find(self, name: str, load: Callable[[], _Known]) -> _Known:
        """What `load` returned for this name, or returns now. An error is not kept."""
        state = self.state()
        if state is None:
            return load()
        known = self._known
        if known[0] == state:
            found = known[1].get(name)
            if found is not None:
                return found
        # It is read after the state was: at least as new as that.
        found = load()
        if known[0] != state:
            known = self._known = (state, {})
        if len(known[1]) < _MOST:
            known[1][name] = found
        return found

    def carry_on(self, before: bytes | None) -> None:
        """The one commit since that state was one of ours, and changed no bucket."""
        known, after = self._known, self.state()
        if (
            before is not None
            and after is not None
            and known[0] == before
            and count_commits(after) == (count_commits(before) + 1) & 0xFFFFFFFF
        ):
            self._known = (after, known[1])

    def state(self) -> bytes | None:
        """The state of the index; None when it cannot be told."""
        if self._watch is None:
            if self._is_blind:
                return None
            with self._lock:
                try:
                    self._watch = self._watch or CommitWatch(self._path)
                except sqlite3.Error:
                    self._is_blind = True
                    return None
        return self._watch.state()

    def close(self) -> None:
        """Give back the connection."""
        with self._lock:
            self._watch, self._is_blind, self._known = None, True, (b"", {})
