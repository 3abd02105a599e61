"""Blob files: written once under a random name, read-only for ever after, removed when no key needs them.

A file is born in `incoming/<session>/`, where a session is one process that holds the lock of its folder.
It becomes a blob by a second, hard link below `blobs/`; the first link goes only after the index row is
committed. So whatever a dead process left is found by looking into the folders of dead sessions, at a cost
that grows with the work that was in flight and not with the store; and what a living process is working on
is never touched.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trainshed.durable import sync_folder
from trainshed.store.embedded.folder_placement import spread_folders
from trainshed.store.embedded.transactions import explained_errors

__all__ = ["Blobs"]

_PER_FOLDER = 256
_NAMES = 64


class Blobs:
    """The folder of blob files, shared by all processes of the platform on this machine."""

    def __init__(self, folder: Path) -> None:
        self._blobs = folder / "blobs"
        self._incoming = folder / "incoming"
        self._quarantine = folder / "quarantine"
        self._lock = threading.Lock()
        self._session = ""
        self._session_lock = -1
        self._fan = os.urandom(1).hex()
        self._fans: dict[str, str] = {}
        self._created = 0
        # Random names for the next files, got from the system many at a time.
        self._names: list[str] = []
        self._folders: dict[str, Path] = {}
        with explained_errors():
            for part in (folder, self._blobs, self._incoming):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(folder)

    def path(self, blob: str) -> Path:
        """Where a blob lies."""
        return self._blobs / blob[:2] / blob

    def create(self) -> tuple[str, str, int]:
        """A new file under a random name, open for writing: its name, its first place, its descriptor."""
        blob, source = self._new_name()
        return blob, source, os.open(source, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)

    def birthplace(self) -> str:
        """A folder near which new files are made fast, whatever was removed elsewhere (see `spread_folders`)."""
        self._count_new()
        return self._ensure_session(self._fan)

    def adopt(self, path: Path) -> tuple[str, str]:
        """The same for a file that is there already: its name as a blob, its first place."""
        blob, source = self._new_name()
        os.link(path, source)
        return blob, source

    def _count_new(self) -> None:
        # Neighbours in time share a folder, so that writers that commit together sync it once.
        self._created += 1
        if self._created % _PER_FOLDER == 0:
            self._fan = os.urandom(1).hex()

    def _new_name(self) -> tuple[str, str]:
        self._count_new()
        blob = self._fan + self._random_name()
        # Text, not paths: this is done for every object, and joining paths is dear.
        return blob, f"{self._ensure_session(self._fan)}/{blob}"

    def _random_name(self) -> str:
        try:
            return self._names.pop()
        except IndexError:
            digits = os.urandom(15 * _NAMES).hex()
            names = [digits[at : at + 30] for at in range(0, len(digits), 30)]
            self._names += names[1:]
            return names[0]

    def publish(self, blob: str, source: str) -> list[Path]:
        """Link a finished file among the blobs; returns the folders whose names must be synced."""
        place = f"{self._blobs}/{blob[:2]}/{blob}"
        folder = self._folder(blob[:2])
        try:
            os.link(source, place)
        except FileNotFoundError:
            folder.mkdir(mode=0o700, exist_ok=True)
            os.link(source, place)
            return [self._blobs, folder]
        return [folder]

    def _folder(self, fan: str) -> Path:
        folder = self._folders.get(fan)
        if folder is None:
            folder = self._folders[fan] = self._blobs / fan
        return folder

    def remove(self, blobs: Iterable[str]) -> None:
        """Remove blob files that no row of the index names any more."""
        for blob in blobs:
            _unlink(self.path(blob))

    def forget_source(self, source: str) -> None:
        """Remove the first name of a file, which tells that somebody is about to commit it."""
        _unlink(source)

    def settled(self) -> Iterator[str]:
        """All blobs that nobody is about to commit: they have lost their incoming name, whatever else links them."""
        for folder in self._blobs.iterdir():
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        if entry.stat().st_nlink == 1 or not self._is_incoming(entry.name):
                            yield entry.name
                    except FileNotFoundError:
                        continue

    def _is_incoming(self, blob: str) -> bool:
        return any(
            (session / blob[:2] / blob).exists() or (session / blob).exists()
            for session in self._incoming.iterdir()
        )

    def quarantine(self, blob: str) -> Path:
        """Set a damaged blob aside, where nobody reads it."""
        self._quarantine.mkdir(mode=0o700, exist_ok=True)
        place = self._quarantine / blob
        try:
            self.path(blob).rename(place)
        except FileNotFoundError:
            pass
        return place

    def sweep_dead_sessions(self, unknown: Callable[[list[str]], set[str]]) -> int:
        """Remove what processes that died left unfinished; `unknown` tells which blobs the index lacks."""
        removed = 0
        for lock in self._incoming.glob("*.lock"):
            try:
                descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Only now is it certain that its owner is gone, and only now may the index be asked:
                # asked earlier, it could miss a row that the owner committed just before it died.
                folder = self._incoming / lock.name.removesuffix(".lock")
                # An earlier version had no folders within that of the session.
                files = [path for path in folder.rglob("*") if not path.is_dir()]
                for blob in unknown([path.name for path in files]):
                    _unlink(self.path(blob))
                    removed += 1
                for path in files:
                    _unlink(path)
                _remove_folders(folder)
                _unlink(lock)
            except BlockingIOError:
                continue
            finally:
                os.close(descriptor)
        return removed

    def close(self) -> None:
        """End this process's session."""
        with self._lock:
            if not self._session:
                return
            try:
                _remove_folders(self._incoming / self._session)
            except OSError:
                # The folders are made again when they are needed.
                self._fans.clear()
                return  # Something is still in flight: the lock must stay as long as the process does.
            _unlink(self._incoming / f"{self._session}.lock")
            self._drop_session()

    def forget_session(self) -> None:
        """After a fork: the session belongs to the parent, this process begins its own."""
        self._lock = threading.Lock()
        # They are the parent's.
        self._names = []
        self._drop_session()

    def _drop_session(self) -> None:
        if self._session_lock >= 0:
            os.close(self._session_lock)
        self._session_lock = -1
        self._session = ""
        self._fans.clear()

    def _ensure_session(self, fan: str) -> str:
        """The folder in which this process makes the files of one folder of blobs."""
        with self._lock:
            if fan in self._fans:
                return self._fans[fan]
            while not self._session:
                session = f"{os.getpid()}-{os.urandom(6).hex()}"
                lock = self._incoming / f"{session}.lock"
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.fstat(descriptor).st_nlink == 0:
                    # A sweep took the file for a dead one between its creation and the lock.
                    os.close(descriptor)
                    continue
                (self._incoming / session).mkdir(mode=0o700)
                spread_folders(self._incoming / session)
                self._session, self._session_lock = session, descriptor
            folder = self._incoming / self._session / fan
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fans[fan] = str(folder)
            return self._fans[fan]


def _remove_folders(folder: Path) -> None:
    """Remove a folder of empty folders."""
    if folder.is_dir():
        for part in folder.iterdir():
            part.rmdir()
        folder.rmdir()


def _unlink(path: Path | str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
