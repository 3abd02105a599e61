"""Files that survive a crash whole, and folders that go away for sure."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["hold_lock", "remove_tree", "write_durably"]


def write_durably(path: Path, data: Any) -> None:
    """Replace a file so that after a crash it holds either the old content or the new, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Be the only one who does something, among all processes that take this file's lock for it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Remove a folder that a job could write into; folders without permissions are no obstacle."""

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
