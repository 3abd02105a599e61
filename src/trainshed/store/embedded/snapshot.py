"""Snapshots of the embedded store: one view of the index, and hard links to the blobs."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from trainshed.store.embedded.index import APPENDABLE
from trainshed.store.file_copy import copy_in_steps
from trainshed.store.snapshot import SnapshotObject, Tick, Vanished, is_executable, make_file

if TYPE_CHECKING:
    from trainshed.store.embedded.store import EmbeddedStore

__all__ = ["EmbeddedSnapshot"]

# What a script expects of its data. A blob that a tree shares has it too: the two are one file.
_SHARED_MODE = 0o644
# No more links to this file, another file system, or one that knows no links: the bytes are copied then.
_NO_LINK = (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP)


class EmbeddedSnapshot:
    """A folder or object of the embedded store.

    Contents are the random names of blobs. Nobody can make up a second folder with the same digest, hence
    the digest does not say where the folder lies, and copies of a folder share one.
    """

    def __init__(self, store: EmbeddedStore, bucket: str, key: str) -> None:
        self._store = store
        self._transactions = store._transactions
        self._blobs = store._blobs
        self._bucket = bucket
        self._key = key
        self.place = ""
        # Links are made so fast that threads would only wait for one another.
        self.hands = 1

    @contextmanager
    def read(self) -> Iterator[Iterator[SnapshotObject]]:
        """All objects in the order of keys, all of one moment: a single statement reads them."""
        low = self._key.encode()
        is_folder = not low or low.endswith(b"/")
        # UTF-8 has no byte 0xff: behind all keys that begin so, and nothing but the one key itself.
        high = low + b"\xff" if is_folder else low + b"\0"
        cut = len(low) if is_folder else low.rfind(b"/") + 1
        self._store.bucket(self._bucket)
        with self._transactions.read() as connection:
            rows = connection.execute(
                "SELECT key, blob, size, metadata, EXISTS (SELECT 1 FROM objects AS same WHERE"
                " same.blob = objects.blob AND same.blob != '' AND same.kind = ?) FROM objects"
                " WHERE key >= ? AND key < ? AND bucket_id = (SELECT id FROM buckets WHERE name = ?)"
                " ORDER BY key",
                (APPENDABLE, low, high, self._bucket),
            )
            with closing(rows):
                yield (
                    SnapshotObject(
                        key[cut:].decode(),
                        size,
                        blob,
                        bool(metadata) and is_executable(json.loads(metadata)),
                        bool(may_grow),
                    )
                    for key, blob, size, metadata, may_grow in rows
                )

    def put(self, item: SnapshotObject, name: str, folder: int, tick: Tick) -> bool:
        """Link an object's blob into an open folder, or copy it where that cannot be."""
        if not item.content:
            with make_file(name, folder, is_executable=item.is_executable):
                return True
        blob = self._blobs.path(item.content)
        try:
            # A blob may belong to several keys of which one is executable: then its mode is not theirs to choose.
            if not item.is_executable and not item.may_grow:
                try:
                    os.link(blob, name, dst_dir_fd=folder)
                except OSError as error:
                    if error.errno not in _NO_LINK:
                        raise
                else:
                    if stat.S_IMODE(os.stat(name, dir_fd=folder).st_mode) != _SHARED_MODE:
                        os.chmod(name, _SHARED_MODE, dir_fd=folder)
                    return False
            source = os.open(blob, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Vanished(item.path) from None
        try:
            with make_file(name, folder, is_executable=item.is_executable) as file:
                copy_in_steps(source, file, item.size, tick)
        finally:
            os.close(source)
        return True
