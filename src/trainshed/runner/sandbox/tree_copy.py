"""A copy of a tree for one job, where the machine cannot show it through an overlay: watched, and only if it fits."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainshed.model.errors import HostUnfit
from trainshed.store.file_copy import copy_in_steps

__all__ = ["CopyState", "CopyWatch", "copy_file", "copy_tree"]

# Room that is left to others.
_SPARE_BYTES = 64 << 20
_SMALL_PIECE = 64 << 10
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class CopyState:
    """How far a copy is. `target` is where the job will see it."""

    target: str
    files: int = 0
    bytes: int = 0
    total_files: int = 0
    total_bytes: int = 0


# Called while a tree is copied; ends the copy by raising.
CopyWatch = Callable[[CopyState], None]


def copy_file(source: str, target: str) -> None:
    """Copy the bytes of a small file into a new one."""
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            while data := os.read(reader, _SMALL_PIECE):
                while data:
                    data = data[os.write(writer, data) :]
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def copy_tree(source: int, target: int, shown: str, watch: CopyWatch) -> None:
    """Copy what lies in an open folder into another: links as links, with modes and times.

    What cannot fit on the disk is refused before the first byte.
    """
    files = size = 0
    for entry in _walk(source):
        files += 1
        size += entry.st_size
    watch(CopyState(shown, 0, 0, files, size))
    found = os.statvfs(f"/proc/self/fd/{target}")
    free = found.f_bavail * found.f_frsize
    if size + _SPARE_BYTES > free:
        raise HostUnfit(
            f"The node's disk has {free / 1e9:.1f} GB free, and a copy of {shown} needs {size / 1e9:.1f} GB.",
            hint="Free some room (`trainshed status` shows it), then rerun the job. (This machine offers no overlay"
            " mounts, which need no copy: `trainshed doctor` says why.)",
            code="disk_full",
        )
    _Copy(shown, watch, files, size).copy_folder(_open(source), _open(target))


def _open(descriptor: int) -> int:
    """The same folder, open for reading."""
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _walk(folder: int) -> Iterator[os.stat_result]:
    """What is known of all regular files below an open folder."""
    start = _open(folder)
    try:
        for _, _, files, here in os.fwalk(".", dir_fd=start, follow_symlinks=False):
            for name in files:
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield found
    finally:
        os.close(start)


class _Copy:
    def __init__(self, shown: str, watch: CopyWatch, files: int, size: int) -> None:
        self._shown, self._watch = shown, watch
        self._total = files, size
        self._files = self._bytes = 0

    def copy_folder(self, source: int, target: int) -> None:
        """Copy the entries of one open folder into another; closes both."""
        try:
            with os.scandir(source) as entries:
                names = [entry.name for entry in entries]
            for name in names:
                self._copy_entry(name, source, target)
            found = os.fstat(source)
            os.fchmod(target, stat.S_IMODE(found.st_mode))
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(source)
            os.close(target)

    def _copy_entry(self, name: str, source: int, target: int) -> None:
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif stat.S_ISDIR(found.st_mode):
            os.mkdir(name, 0o700, dir_fd=target)
            self.copy_folder(os.open(name, _FOLDER, dir_fd=source), os.open(name, _FOLDER, dir_fd=target))
        elif stat.S_ISREG(found.st_mode):
            self._copy_file(name, source, target)

    def _copy_file(self, name: str, source: int, target: int) -> None:
        reader = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            writer = os.open(name, flags, 0o600, dir_fd=target)
            try:
                found = os.fstat(reader)
                copy_in_steps(reader, writer, found.st_size, self._move)
                os.fchmod(writer, stat.S_IMODE(found.st_mode))
                os.utime(writer, ns=(found.st_atime_ns, found.st_mtime_ns))
            finally:
                os.close(writer)
        finally:
            os.close(reader)
        self._files += 1
        self._move(0)

    def _move(self, count: int) -> None:
        self._bytes += count
        self._watch(CopyState(self._shown, self._files, self._bytes, *self._total))
