"""What lies in a checkpoint folder at one moment, and what of it came with an earlier attempt."""

from __future__ import annotations

import json
import os
from pathlib import Path

from trainshed.durable import write_durably
from trainshed.store.folder_tree import FolderTree

__all__ = ["Stamp", "checkpoint_folder", "look_into", "read_staged", "remember_staged", "stamp_of"]


# What tells one content of a file from another without reading it: inode, size, and when it was changed.
Stamp = tuple[int, int, int]


def checkpoint_folder(root: Path) -> Path:
    """Where the folder lies on this machine."""
    return root / "checkpoints"


def stamp_of(facts: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def look_into(folder: Path) -> dict[str, Stamp]:
    """All regular files below a folder, by their paths in it."""
    found: dict[str, Stamp] = {}
    with FolderTree(folder) as tree:
        for path in tree.walk(lambda path, why: None):
            if path.endswith("/"):
                continue
            try:
                found[path] = stamp_of((folder / path).lstat())
            except OSError:
                continue  # Gone since it was listed.
    return found


def remember_staged(root: Path) -> None:
    """Note what earlier attempts left, before the job begins: every node has all of it, and only what a node
    changes is that node's own."""
    write_durably(_staged_file(root), dict(_look(root)))


def read_staged(root: Path) -> dict[str, Stamp]:
    """What earlier attempts left."""
    try:
        found = json.loads(_staged_file(root).read_bytes())
    except FileNotFoundError:
        return {}
    return {path: (stamp[0], stamp[1], stamp[2]) for path, stamp in found.items()}


def _look(root: Path) -> dict[str, Stamp]:
    return look_into(checkpoint_folder(root))


def _staged_file(root: Path) -> Path:
    return root / "checkpoints.staged.json"
