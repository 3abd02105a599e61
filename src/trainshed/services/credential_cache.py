"""Credentials that were looked up a moment ago, good as long as nothing in the database has changed.

Every request carries a credential, and most carry the same ones. The embedded database tells for next to
nothing whether anybody has committed anything since one last asked (`commit_watch`). Hence there is
nothing to expire and nobody to notify: whatever is revoked, changed or ended counts from the next request on.
PostgreSQL has no such question; there, every credential is looked up.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Engine

from trainshed.store.embedded.commit_watch import CommitWatch

__all__ = ["CredentialCache", "cache_of"]

T = TypeVar("T")

_MOST = 1024


class _Memory(threading.local):
    """What one thread remembers. Threads share nothing here, so that none waits for another."""

    watch: CommitWatch | None = None
    version: int | bytes | None = None

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Any] = {}


class CredentialCache:
    """What was read from one database, for as long as that stays as it was."""

    def __init__(self, engine: Engine) -> None:
        self._path = engine.url.database if engine.url.get_backend_name() == "sqlite" else None
        self._memory = _Memory()
        self.process = os.getpid()

    def find(self, kind: str, name: str, load: Callable[[], T]) -> T:
        """What `load` returned for this name, or returns now. An error is not kept."""
        if not self._path:
            return load()
        memory = self._memory
        version = self._ask_version(memory)
        if version is None or version != memory.version:
            memory.entries.clear()
            memory.version = version
        elif (kind, name) in memory.entries:
            known: T = memory.entries[kind, name]
            return known
        # It is read after the version was: at least as new as that.
        value = load()
        if version is not None and len(memory.entries) < _MOST:
            memory.entries[kind, name] = value
        return value

    def _ask_version(self, memory: _Memory) -> int | bytes | None:
        try:
            if memory.watch is None:
                memory.watch = CommitWatch(str(self._path))
            return memory.watch.state() or memory.watch.ask()
        except sqlite3.Error:
            return None


_caches: weakref.WeakKeyDictionary[Engine, CredentialCache] = weakref.WeakKeyDictionary()
_caches_lock = threading.Lock()


def cache_of(engine: Engine) -> CredentialCache:
    """The cache of a database, in this process."""
    cache = _caches.get(engine)
    if cache is None or cache.process != os.getpid():
        with _caches_lock:
            cache = _caches.get(engine)
            if cache is None or cache.process != os.getpid():
                cache = _caches[engine] = CredentialCache(engine)
    return cache
