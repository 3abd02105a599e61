"""Copying many small objects into a folder of the store's own machine.

The kernel does the copying, and what it needs per file cannot be saved. All else is done for many files at once: rows
are read by the page, a folder is opened once for its files, and the caller is told of a group and not of each file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from trainshed.store.embedded import index
from trainshed.store.embedded.file_window import copy_file
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.folder_tree import FileGone, FolderTree, safe_parts
from trainshed.store.records import ObjectInfo
from trainshed.store.snapshot import is_executable

__all__ = ["Group", "NearObject", "copy_group", "group_by_folder", "walk_near"]

_PAGE = 1000
# A group is what one thread takes: enough to be worth it, and not so much that the others wait at the end.
_GROUP_FILES = 32
_GROUP_BYTES = 16 << 20
# Larger ones are copied in steps, each a group of its own.
_SMALL = 4 << 20


@dataclass(frozen=True, slots=True)
class NearObject:
    """An object, and the file that holds its bytes (empty: it has none)."""

    info: ObjectInfo
    file: str

    @property
    def key(self) -> str:
        """The object's key."""
        return self.info.key


@dataclass(slots=True)
class Group:
    """Objects that become files of one folder; or a single one that needs more care."""

    above: list[str] = field(default_factory=list)
    objects: list[NearObject] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    bytes: int = 0


def walk_near(store: EmbeddedStore, bucket: str, prefix: str) -> Iterator[NearObject]:
    """All objects below a prefix, page by page: no lock is held between them."""
    low = prefix.encode()
    high = index.successor(low)
    while True:
        rows = store.read_rows(bucket, low, high, _PAGE)
        for row in rows:
            yield NearObject(row.info, store.blob_file(row.blob) if row.blob else "")
        if len(rows) < _PAGE:
            return
        low = rows[-1].info.key.encode() + b"\0"


def group_by_folder(objects: Iterable[NearObject], cut: int) -> Iterator[Group]:
    """Neighbours that lie in one folder below the first `cut` characters of their keys, a few at a time.

    What is no small file with a good name comes alone and without a name: it is for others to judge.
    """
    group, folder = Group(), None
    for one in objects:
        above, slash, name = one.key[cut:].rpartition("/")
        parts = safe_parts(above + slash + name) if name and 0 < one.info.size <= _SMALL else None
        if parts is None:
            yield Group(objects=[one])
            continue
        if group.objects and (
            above != folder or len(group.objects) >= _GROUP_FILES or group.bytes >= _GROUP_BYTES
        ):
            yield group
            group = Group()
        if not group.objects:
            group.above, folder = parts[:-1], above
        group.objects.append(one)
        group.names.append(name)
        group.bytes += one.info.size
    if group.objects:
        yield group


def copy_group(
    tree: FolderTree,
    group: Group,
    copied: Callable[[int], None],
    skip: Callable[[str, str], None],
    birthplace: str = "",
) -> list[NearObject]:
    """Copy the files of a group; `copied` is told of their sizes, `skip` of keys that cannot be placed and why.

    The files may begin in `birthplace`, a folder where making them is cheap. Returns those whose bytes are no longer where they were: overwritten or removed, they must be asked for anew.
    """
    moved = []
    sources: list[tuple[NearObject, str, int]] = []
    try:
        for one, name in zip(group.objects, group.names, strict=True):
            try:
                source = os.open(one.file, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                moved.append(one)
                continue
            sources.append((one, name, source))
            # The disk brings all of them while the first ones are being copied.
            os.posix_fadvise(source, 0, one.info.size, os.POSIX_FADV_WILLNEED)
        with tree.open_folder(group.above, make=True) as here:
            for one, name, source in sources:
                try:
                    birthplace = _copy(tree, here, name, one.info, source, birthplace)
                except FileGone as gone:
                    skip(one.key, gone.reason)
                else:
                    copied(one.info.size)
    except FileGone as gone:
        # The folder itself cannot be.
        for one, _, _ in sources:
            skip(one.key, gone.reason)
    finally:
        for _, _, source in sources:
            os.close(source)
    return moved


def _copy(tree: FolderTree, here: int, name: str, info: ObjectInfo, source: int, birthplace: str) -> str:
    """Copy one file; returns where the next one may begin."""
    is_program = bool(info.metadata) and is_executable(info.metadata)
    try:
        with tree.new_file_in(here, name, is_executable=is_program, birthplace=birthplace) as target:
            copy_file(source, target, info.size)
        return birthplace
    except OSError as error:
        if not birthplace or error.errno != errno.EXDEV:
            raise
    # The target lies on another disk.
    return _copy(tree, here, name, info, source, "")
