"""Brings the files that TensorBoard reads from the object store to a folder, and keeps them up to date."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from trainshed.model.errors import TrainshedError
from trainshed.store.folder_tree import FileGone, FolderTree, safe_parts
from trainshed.store.object_store import ObjectInfo, ObjectStore

__all__ = ["EventMirror", "is_shown"]

_MOST_BYTES = 4 << 30
_MOST_OBJECTS = 200_000


def is_shown(key: str) -> bool:
    """Whether TensorBoard reads an object of this key: event files, and the files of its plugins."""
    name = key.rpartition("/")[2]
    return "tfevents" in name or "/plugins/" in f"/{key}"


class EventMirror:
    """A copy of the event files below a prefix; only what has changed is fetched again."""

    def __init__(self, store: ObjectStore, bucket: str, prefix: str, folder: Path) -> None:
        self._store = store
        self._bucket = bucket
        self._prefix = prefix
        self._folder = folder
        self._known: dict[str, tuple[int, str]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def refresh(self) -> int:
        """Fetch what is new; the number of files that were fetched. A store that is away changes nothing."""
        fetched = 0
        total = 0
        try:
            with FolderTree(self._folder) as tree:
                for info in self._wanted():
                    total += info.size
                    if total > _MOST_BYTES:
                        break
                    fetched += self._fetch(tree, info)
        except (TrainshedError, OSError):
            return fetched
        return fetched

    def _wanted(self) -> Iterator[ObjectInfo]:
        for count, info in enumerate(self._store.walk(self._bucket, self._prefix)):
            if count >= _MOST_OBJECTS:
                return
            if not info.key.endswith("/") and is_shown(info.key.removeprefix(self._prefix)):
                yield info

    def _fetch(self, tree: FolderTree, info: ObjectInfo) -> int:
        relative = info.key.removeprefix(self._prefix) or info.key.rpartition("/")[2]
        parts = safe_parts(relative)
        if parts is None or self._known.get(relative) == (info.size, info.etag):
            return 0
        try:
            with tree.new_file(parts) as target:
                self._store.fetch_to_file(self._bucket, info.key, target)
                os.fchmod(target, 0o644)
        except FileGone:
            return 0
        self._known[relative] = (info.size, info.etag)
        return 1
