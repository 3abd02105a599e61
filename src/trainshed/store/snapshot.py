"""What a folder of the store holds at one moment, and how its files are put into a local folder."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from trainshed.store.object_store import ObjectStore

__all__ = [
    "Snapshot",
    "SnapshotHash",
    "SnapshotObject",
    "Vanished",
    "is_executable",
    "make_file",
    "open_snapshot",
]

# Called with the number of bytes that were just copied.
Tick = Callable[[int], None]


class Vanished(Exception):
    """An object of the snapshot is gone from the store: the snapshot is over and must be taken again."""


@dataclass(frozen=True, slots=True)
class SnapshotObject:
    """An object of a folder at one moment: its path in the folder, and what tells its bytes from others."""

    path: str
    size: int
    # Empty for an empty object, else the name of the bytes: never given to other bytes.
    content: str
    is_executable: bool = False
    # Whether its bytes are shared with an object that is appended to: such a file grows.
    may_grow: bool = False


class SnapshotHash:
    """The digest of what a folder holds."""

    def __init__(self, place: str = "") -> None:
        self._hash = hashlib.sha256(place.encode())

    def add(self, item: SnapshotObject) -> None:
        """Take the next object, in the order of keys."""
        self._hash.update(f"{item.path}\0{item.content}\0{item.size}\0{item.is_executable:d}\n".encode())

    def hexdigest(self) -> str:
        """The digest of all that was added."""
        return self._hash.hexdigest()


class Snapshot(Protocol):
    """A folder of the store (a key that is empty or ends in `/`), or one object."""

    # Part of the digest where contents are only told apart by checksums that somebody could forge.
    place: str
    # How many objects are worth fetching at once: a store far away answers late, but many together.
    hands: int

    def read(self) -> AbstractContextManager[Iterator[SnapshotObject]]:
        """All objects in the order of keys."""
        ...

    def put(self, item: SnapshotObject, name: str, folder: int, tick: Tick) -> bool:
        """Make an object's file in an open folder; tells whether its bytes were copied (False: shared).

        Raises `Vanished` when the object is gone. A shared file must never be handed out for writing.
        """
        ...


def open_snapshot(store: ObjectStore, bucket: str, key: str) -> Snapshot:
    """The snapshots of a folder or object of the store, by the fastest way that this store has."""
    from trainshed.store.embedded.store import EmbeddedStore

    if isinstance(store, EmbeddedStore):
        from trainshed.store.embedded.snapshot import EmbeddedSnapshot

        return EmbeddedSnapshot(store, bucket, key)
    return ListedSnapshot(store, bucket, key)


class ListedSnapshot:
    """The snapshot of a store that can only be listed: files are copied, and told apart by their ETags."""

    def __init__(self, store: ObjectStore, bucket: str, key: str) -> None:
        self._store = store
        self._bucket = bucket
        self._key = key
        self._is_folder = not key or key.endswith("/")
        self.place = f"{bucket}/{key}\n"
        self.hands = 16

    @contextmanager
    def read(self) -> Iterator[Iterator[SnapshotObject]]:
        """All objects in the order of keys, page by page."""
        if self._is_folder:
            objects = self._store.walk(self._bucket, self._key)
        else:
            objects = iter([self._store.info(self._bucket, self._key)])
        cut = len(self._key) if self._is_folder else len(self._key.rpartition("/")[0]) + ("/" in self._key)
        # A list may not tell of the executable bit; an object that got another one has another time, too.
        yield (
            SnapshotObject(
                info.key[cut:],
                info.size,
                f"{info.etag} {info.modified_at:.0f}" if info.size else "",
                is_executable(info.metadata),
            )
            for info in objects
        )

    def put(self, item: SnapshotObject, name: str, folder: int, tick: Tick) -> bool:
        """Copy an object's bytes into a new file; its ETag must still be the one that was listed."""
        from trainshed.model.errors import NotFound

        with make_file(name, folder, is_executable=item.is_executable) as file:
            if not item.content:
                return True
            key = self._key + item.path if self._is_folder else self._key
            try:
                info = self._store.fetch_to_file(self._bucket, key, file)
            except NotFound:
                raise Vanished(item.path) from None
            if info.etag != item.content.partition(" ")[0]:
                raise Vanished(item.path)
            if is_executable(info.metadata):
                os.fchmod(file, 0o755)
            tick(item.size)
        return True


@contextmanager
def make_file(name: str, folder: int, *, is_executable: bool) -> Iterator[int]:
    """A new file in an open folder, open for writing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        os.fchmod(file, 0o755 if is_executable else 0o644)
        yield file
    finally:
        os.close(file)


def is_executable(metadata: dict[str, str]) -> bool:
    """Whether an object was stored from a file that its owner may execute."""
    try:
        return bool(int(metadata.get("mode", "0"), 8) & stat.S_IXUSR)
    except ValueError:
        return False
