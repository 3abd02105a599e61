"""Small files of this machine on their way into its store: many are committed together (see `together`)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence

from trainshed.model.errors import NotFound, TrainshedError
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.embedded.together import WholeObject, commit_together
from trainshed.store.folder_tree import FileGone, FolderTree
from trainshed.store.object_store import ObjectInfo

__all__ = ["group_paths", "send_group"]

# What is larger is sent alone; a group is held in memory until it is durable.
_SMALL = 1 << 18
_MOST_TOGETHER = 32


def group_paths(paths: Iterable[str]) -> Iterator[list[str]]:
    """Neighbours, as many as are sent together."""
    group: list[str] = []
    for path in paths:
        group.append(path)
        if len(group) == _MOST_TOGETHER:
            yield group
            group = []
    if group:
        yield group


def send_group(
    store: EmbeddedStore,
    tree: FolderTree,
    paths: Sequence[str],
    bucket: str,
    prefix: str,
    tell: Callable[[int], None],
    *,
    only_new: bool = False,
) -> list[str]:
    """Store the small files among some paths and tell the size of each; returns the paths that are to be sent alone.

    Those are folders, large files, with `only_new` those whose key has an object already, and whatever did not work:
    sent alone it works, or says why not.
    """
    sent: list[str] = []
    objects: list[WholeObject] = []
    alone: list[str] = []
    for path in paths:
        try:
            is_alone = path.endswith("/") or (only_new and _exists(store, bucket, prefix + path))
            whole = None if is_alone else _take(store, tree, path, bucket, prefix + path)
        except (FileGone, OSError, UnicodeError, TrainshedError):
            whole = None
        if whole is None:
            alone.append(path)
        else:
            sent.append(path)
            objects.append(whole)
    if objects:
        for path, outcome in zip(sent, commit_together(objects), strict=True):
            if isinstance(outcome, ObjectInfo):
                tell(outcome.size)
            else:
                alone.append(path)
    return alone


def _exists(store: EmbeddedStore, bucket: str, key: str) -> bool:
    try:
        store.info(bucket, key)
    except NotFound:
        return False
    return True


def _take(store: EmbeddedStore, tree: FolderTree, path: str, bucket: str, key: str) -> WholeObject | None:
    """A small file as an object that nobody sees yet; None for one that is large, or changes just now."""
    file = tree.open_file(path)
    try:
        facts = os.fstat(file)
        data = os.pread(file, facts.st_size, 0) if facts.st_size <= _SMALL else None
    finally:
        os.close(file)
    if data is None or len(data) != facts.st_size:
        return None
    metadata = {"mode": "755"} if facts.st_mode & stat.S_IXUSR else {}
    with store.upload(bucket, key, metadata=metadata) as upload:
        upload.write_last(data)
        return upload.finish()
