"""Connections to the index, and group commit: writers that arrive together share one transaction."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from trainshed.durable import sync_folder
from trainshed.model.errors import TrainshedError, Unavailable
from trainshed.store.embedded.bucket_memory import BucketMemory
from trainshed.store.embedded.schema import upgrade_schema

__all__ = [
    "UNCERTAIN",
    "Transactions",
    "disk_full",
    "explain_os_error",
    "explained_errors",
    "locked",
]

T = TypeVar("T")

# Codes of errors after which nobody can say whether the transaction was committed.
UNCERTAIN = ("write_interrupted", "store_failed")
_BUSY_SECONDS = 60.0
# Transactions of other processes last some milliseconds. SQLite's own waiting soon sleeps for 25 to 100 of them.
_TURN_SECONDS = 0.001
_MAX_BATCH = 256

# Connections that were open at a fork: never used again and never closed in the child, because SQLite
# forbids both. Keeping a reference keeps Python from closing them.
_inherited: list[sqlite3.Connection] = []


class _Pending:
    """A write that waits for its transaction."""

    def __init__(
        self, work: Callable[[sqlite3.Connection], Any], folders: Iterable[Path], *, keeps_buckets: bool
    ) -> None:
        self.work = work
        self.folders = tuple(folders)
        self.keeps_buckets = keeps_buckets
        self.is_done = False
        self.is_leader = False
        # Held until the write is done, or until it is this writer's turn to write for all.
        self.wake = threading.Lock()
        self.wake.acquire()
        self.result: Any = None
        self.error: BaseException | None = None


class Transactions:
    """The index file, safe for many threads and processes at once, also across a fork."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reset()
        self._prepare()

    def _reset(self) -> None:
        self._idle: list[sqlite3.Connection] = []
        self._idle_writers: list[sqlite3.Connection] = []
        self._pool_lock = threading.Lock()
        self._queue: list[_Pending] = []
        self._queue_lock = threading.Lock()
        self._has_leader = False
        self.buckets = BucketMemory(self.path)

    def forget_connections(self) -> None:
        """After a fork: the connections belong to the parent, this process makes its own."""
        _inherited.extend(self._idle + self._idle_writers)
        self._reset()

    def _connect(self, busy_seconds: float = _BUSY_SECONDS) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
        )
        # FULL: with a write-ahead log, anything less loses acknowledged writes when the power fails.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -2000")
        # So that a row that replaces another one counts as its removal, too.
        connection.execute("PRAGMA recursive_triggers = ON")
        return connection

    def _prepare(self) -> None:
        """Create the tables, once, however many processes open the store at the same moment."""
        with explained_errors(), locked(self.path.parent / "open.lock"):
            connection = self._connect()
            try:
                if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                    connection.execute("PRAGMA journal_mode = WAL").fetchone()
                upgrade_schema(connection, str(self.path.parent))
            finally:
                connection.close()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection for reading; each statement sees all that was committed before it."""
        connection = self._borrow()
        try:
            with explained_errors():
                yield connection
        finally:
            self._give_back(connection)

    def write(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        folders: Iterable[Path] = (),
        keeps_buckets: bool = False,
    ) -> T:
        """Run `work` in a transaction and return its result when that is durable.

        `folders` are made durable before the transaction is, so that no row can outlive its blob file.
        `keeps_buckets`: the work changes no row of a bucket.
        """
        pending = _Pending(work, folders, keeps_buckets=keeps_buckets)
        with self._queue_lock:
            self._queue.append(pending)
            if not self._has_leader:
                self._has_leader = pending.is_leader = True
        # One writes for all that queue behind it, and wakes each of them when that is done. (Were they to wait
        # for a lock instead, each would have to get it in turn, only to find its work done.)
        if not pending.is_leader:
            self._wait(pending)
        if not pending.is_done:
            self._lead(pending)
        if pending.error is not None:
            raise pending.error
        result: T = pending.result
        return result

    def _wait(self, pending: _Pending) -> None:
        try:
            pending.wake.acquire()
        except BaseException:
            with self._queue_lock:
                if pending in self._queue:
                    self._queue.remove(pending)
                was_chosen = pending.is_leader
            if was_chosen:
                self._pass_on()
            raise

    def _lead(self, pending: _Pending) -> None:
        try:
            while not pending.is_done:
                with self._queue_lock:
                    batch, self._queue = self._queue[:_MAX_BATCH], self._queue[_MAX_BATCH:]
                try:
                    self._run(batch)
                finally:
                    for other in batch:
                        if other is not pending:
                            other.wake.release()
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Let the next one in the queue write for all."""
        with self._queue_lock:
            successor = self._queue[0] if self._queue else None
            self._has_leader = successor is not None
            if successor is not None:
                successor.is_leader = True
        if successor is not None:
            successor.wake.release()

    def _run(self, batch: list[_Pending]) -> None:
        connection = None
        try:
            with explained_errors():
                for folder in {folder for pending in batch for folder in pending.folders}:
                    sync_folder(folder)
                connection = self._borrow_writer()
                _begin(connection)
                before = self.buckets.state()
                for pending in batch:
                    self._apply(connection, pending)
                connection.execute("COMMIT")
                if all(pending.keeps_buckets for pending in batch):
                    self.buckets.carry_on(before)
        except BaseException as error:
            for pending in batch:
                if pending.error is None:
                    pending.error = (
                        error
                        if isinstance(error, TrainshedError)
                        else Unavailable(
                            "The write was interrupted before it was durable.", hint="Try again."
                        )
                    )
            if not isinstance(error, TrainshedError):
                raise
        finally:
            for pending in batch:
                pending.is_done = True
            if connection is not None:
                if connection.in_transaction:
                    connection.rollback()
                with self._pool_lock:
                    self._idle_writers.append(connection)

    @staticmethod
    def _apply(connection: sqlite3.Connection, pending: _Pending) -> None:
        connection.execute("SAVEPOINT one")
        try:
            pending.result = pending.work(connection)
        except TrainshedError as error:
            # This writer's own mistake (no such bucket...); the others of the batch go on.
            pending.error = error
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")

    def _borrow(self) -> sqlite3.Connection:
        with self._pool_lock:
            if self._idle:
                return self._idle.pop()
        with explained_errors():
            return self._connect()

    def _borrow_writer(self) -> sqlite3.Connection:
        """A connection that does not wait for other writers by itself. There are as few as write at the same time."""
        with self._pool_lock:
            if self._idle_writers:
                return self._idle_writers.pop()
        return self._connect(0.0)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._pool_lock:
            if len(self._idle) < 16:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close all connections."""
        with self._pool_lock:
            idle, self._idle, self._idle_writers = self._idle + self._idle_writers, [], []
        for connection in idle:
            connection.close()
        self.buckets.close()


def _begin(connection: sqlite3.Connection) -> None:
    """Begin to write, when no other process does."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if (
                not getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
                or time.monotonic() > until
            ):
                raise
        time.sleep(_TURN_SECONDS)


@contextmanager
def explained_errors() -> Iterator[None]:
    """Turn errors of the disk and of SQLite into ones that say what to do."""
    try:
        yield
    except OSError as error:
        raise explain_os_error(error) from error
    except sqlite3.Error as error:
        raise _explain_sqlite_error(error) from error


def explain_os_error(error: OSError) -> TrainshedError:
    """The error a user sees when the disk refuses."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return disk_full()
    return Unavailable(
        f"The object store cannot use its disk: {error.strerror or error}.",
        hint="Ask an administrator to look at the disk and at the store's folder.",
        code="store_failed",
    )


def disk_full() -> Unavailable:
    """The error for a disk with no room left."""
    return Unavailable(
        "The disk of the object store is full; nothing was stored.",
        hint="Remove objects that are no longer needed (trainshed obs rm -r) or give the disk more room.",
        code="disk_full",
    )


def _explain_sqlite_error(error: sqlite3.Error) -> TrainshedError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL") or "disk is full" in str(error):
        return disk_full()
    if name.startswith("SQLITE_BUSY"):
        return Unavailable(
            "The object store is busy with other writers.", hint="Try again.", code="store_busy"
        )
    return Unavailable(
        f"The index of the object store cannot be used: {error}.",
        hint="Ask an administrator to look at the disk and at the store's folder.",
        code="store_failed",
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that all processes of the machine respect; it ends with its holder."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
