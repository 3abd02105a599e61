"""Brings home the files that a job left in its working folders: small ones first, up to a limit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from trainshed.model.errors import TrainshedError
from trainshed.model.masking import Masker
from trainshed.model.size import format_size
from trainshed.runner.homecoming import try_again
from trainshed.runner.launcher_logs import name_launcher_log
from trainshed.runner.log_archive import ARCHIVE_BUCKET
from trainshed.runner.work_folders import NewFile, WorkFolders
from trainshed.store.folder_tree import FileGone, FolderTree

if TYPE_CHECKING:
    from trainshed.store.object_store import ObjectStore

__all__ = ["LEFTOVERS", "MOST_FILES", "choose_leftovers", "upload_leftovers"]

# The part of the archive in which they lie.
LEFTOVERS = "leftovers/"
MOST_FILES = 1000
_CHUNK = 1 << 20
_TOLD = 5
_LONGEST_PATH = 800
# What programs make for themselves and make again.
_OF_NO_USE = ("__pycache__", ".git", ".ipynb_checkpoints", ".pytest_cache", "node_modules")


def choose_leftovers(files: Iterable[NewFile], limit: int) -> tuple[list[NewFile], list[NewFile]]:
    """Which files are kept within so many bytes, and which are left out. Small ones go first: they are more."""
    wanted = [file for file in files if _is_of_use(file)]
    kept: list[NewFile] = []
    left: list[NewFile] = []
    total = 0
    for file in sorted(wanted, key=lambda file: (file.size, file.path)):
        if len(kept) < MOST_FILES and total + file.size <= limit:
            kept.append(file)
            total += file.size
        else:
            left.append(file)
    return kept, left


def upload_leftovers(
    work: WorkFolders,
    store: ObjectStore,
    prefix: str,
    *,
    limit: int,
    secrets: Iterable[str],
    say: Callable[[str], None],
) -> TrainshedError | None:
    """Store what the job left, below the node's part of the archive; what could not be stored is returned."""
    if limit <= 0:
        return None
    kept, left = choose_leftovers(work.new_files(), limit)
    values = list(secrets)
    stored = size = 0
    try:
        for file in kept:
            with FolderTree(file.folder.path) as tree:
                try:
                    source = tree.open_file(file.path)
                except FileGone:
                    continue
            try:
                key = f"{prefix}{LEFTOVERS}{_key(file)}"
                try_again(partial(_put, store, key, source, file.size, values), say)
            finally:
                os.close(source)
            stored, size = stored + 1, size + file.size
    except (TrainshedError, OSError) as fault:
        return (
            fault
            if isinstance(fault, TrainshedError)
            else TrainshedError(f"{fault.strerror}: {fault.filename}")
        )
    if stored:
        say(
            f"files left in the working folder: {stored} kept, {format_size(size)} (`trainshed files` lists them)"
        )
    for file in left[:_TOLD]:
        say(f"files left in the working folder: {file.path} is not kept ({format_size(file.size)})")
    if len(left) > _TOLD:
        say(f"files left in the working folder: {len(left) - _TOLD} more are not kept")
    return None


def _put(store: ObjectStore, key: str, source: int, size: int, secrets: list[str]) -> None:
    # Launchers dump whole environments into files: what is brought home unasked shows no secret.
    store.put(ARCHIVE_BUCKET, key, Masker(secrets).apply(_read(source, size)))


def _is_of_use(file: NewFile) -> bool:
    parts = file.path.split("/")
    if any(part in _OF_NO_USE for part in parts[:-1]) or file.path.endswith((".pyc", ".pyo")):
        return False
    try:
        fits = len(_key(file).encode("utf-8")) <= _LONGEST_PATH
    except UnicodeEncodeError:
        return False
    return fits and not name_launcher_log(file.path) and file.path.isprintable()


def _key(file: NewFile) -> str:
    """The path as the job saw it, without the slash before it."""
    return f"{file.folder.target}/{file.path}".lstrip("/")


def _read(source: int, size: int) -> Iterator[bytes]:
    position = 0
    while position < size:
        data = os.pread(source, min(_CHUNK, size - position), position)
        if not data:
            return
        position += len(data)
        yield data
