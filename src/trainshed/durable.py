"""Files that survive a crash whole, and folders that go away for sure."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["hold_lock", "remove_tree", "replace_file", "sync_folder", "write_durably", "write_whole"]


def write_durably(path: Path, data: Any) -> None:
    """Write JSON so that after a crash the file holds either the old content or the new, whole."""
    _replace(path, json.dumps(data).encode(), 0o600)


def write_whole(path: Path, data: Any) -> None:
    """Write JSON so that whoever reads the file finds the old content or the new; a crash of the machine may lose both."""
    _replace(path, json.dumps(data).encode(), 0o600, sync=False)


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file so that after a crash it holds the new content: the old one only if this has not returned."""
    _replace(path, data, mode)
    sync_folder(path.parent)


def _replace(path: Path, data: bytes, mode: int, *, sync: bool = True) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Be the only one who does something, among all processes that take this file's lock for it."""
    # Not above: the command line runs on systems, too, that have no such module.
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Remove a folder that a job could write into; folders without permissions are no obstacle."""
    import shutil

    def open_up(_: Any, failed: str, fault: BaseException) -> None:
        if isinstance(fault, FileNotFoundError):
            return
        parent = os.path.dirname(failed)
        try:
            os.chmod(parent, 0o700)
            if os.path.isdir(failed) and not os.path.islink(failed):
                os.chmod(failed, 0o700)
                shutil.rmtree(failed, ignore_errors=True)
            else:
                os.unlink(failed)
        except OSError:
            return

    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=open_up)
    else:
        shutil.rmtree(path, onerror=lambda function, failed, info: open_up(function, failed, info[1]))
