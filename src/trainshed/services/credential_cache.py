"""Credentials that were looked up a moment ago, good as long as nothing in the database has changed.

Every request carries a credential, and most carry the same ones. The embedded database tells for next to
nothing whether anybody has committed anything since one last asked (`PRAGMA data_version`). Hence there is
nothing to expire and nobody to notify: whatever is revoked, changed or ended counts from the next request on.
PostgreSQL has no such question; there, every credential is looked up.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine

__all__ = ["CredentialCache", "cache_of"]

T = TypeVar("T")

_MOST = 4096


class CredentialCache:
    """What was read from one database, for as long as that stays as it was."""

    def __init__(self, engine: Engine) -> None:
        self._path = engine.url.database if engine.url.get_backend_name() == "sqlite" else None
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._entries: dict[tuple[str, str], Any] = {}
        self.process = os.getpid()

    def find(self, kind: str, name: str, load: Callable[[], T]) -> T:
        """What `load` returned for this name, or returns now. An error is not kept."""
        if not self._path:
            return load()
        with self._lock:
            version = self._ask_version()
            if version != self._version:
                self._entries.clear()
                self._version = version
            elif (kind, name) in self._entries:
                known: T = self._entries[kind, name]
                return known
        value = load()
        with self._lock:
            # It was read after the version was: at least as new as that. If the version has moved on, nobody
            # can say whether it is as new as the present one.
            if version is not None and version == self._version and len(self._entries) < _MOST:
                self._entries[kind, name] = value
        return value

    def _ask_version(self) -> int | None:
        """A number that changes with every commit of anybody else; this connection itself never writes."""
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(
                    f"{Path(str(self._path)).absolute().as_uri()}?mode=rw",
                    uri=True,
                    isolation_level=None,
                    check_same_thread=False,
                )
            found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
            return found
        except sqlite3.Error:
            return None

    def close(self) -> None:
        """Give back the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._entries.clear()
            self._version = None


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
