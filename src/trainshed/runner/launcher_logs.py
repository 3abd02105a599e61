"""Logs that launchers write into files, one per process they start, followed like the logs of ranks.

torchrun, msrun, paddle.distributed.launch and mpirun keep what their processes say in files of their own. Each
is copied, as it grows, into a spool of the run folder: from there on it is a log like any other.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainshed.model.home import RunFolder
from trainshed.model.late_pattern import late_pattern
from trainshed.runner.work_folders import WorkFolder, WorkFolders
from trainshed.store.folder_tree import FileGone, FolderTree

__all__ = ["LauncherLogs", "name_launcher_log"]

_LOOK_EVERY = 5.0
_MOST_FILES = 256
_MOST_ENTRIES = 5000
_DEEPEST = 6
_CHUNK = 1 << 20
_MOST_PER_TURN = 8 << 20
_TAIL_BYTES = 64 << 10

# Path below a working folder -> name of the log.
_NAMES = tuple(
    (late_pattern(pattern), name)
    for pattern, name in (
        (r"(?:.*/)?(workerlog\.\d{1,5})", r"\1"),
        (r"(?:.*/)?(worker_\d{1,5}\.log)", r"\1"),
        (r"(?:.*/)?(scheduler\.log)", r"\1"),
        (r"(?:.*/)?(?:serverlog|trainerlog)\.(\d{1,5})", r"serverlog.\1"),
        (r"(?:.*/)?attempt_\d{1,5}/(\d{1,5})/(stdout|stderr)\.log", r"torchrun-\1.\2"),
        (r"(?:.*/)?rank\.(\d{1,5})/(stdout|stderr)", r"mpirun-\1.\2"),
    )
)


def name_launcher_log(path: str) -> str:
    """The name of the log that a launcher writes to this path; empty if it is no such file."""
    for pattern, name in _NAMES:
        match = pattern.fullmatch(path)
        if match:
            return match.expand(name)
    return ""


@dataclass
class _Followed:
    """A file that is being copied: where it lies, and how far the copy has come."""

    folder: WorkFolder
    path: str
    spool: Path
    offset: int = 0
    # The file that was read last (a launcher that starts again makes a new one); 0 before the first time.
    inode: int = 0


class LauncherLogs:
    """Finds the files that launchers write, and brings what is new in them to spools of the run folder."""

    def __init__(
        self,
        work: WorkFolders,
        folder: RunFolder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = work
        self._folder = folder
        self._clock = clock
        self._next_look = 0.0
        self._files: dict[tuple[Path, str], _Followed] = {}

    def read(self, *, final: bool = False) -> None:
        """Take in what is new; at the end all of it."""
        now = self._clock()
        if final or now >= self._next_look:
            self._next_look = now + _LOOK_EVERY
            self._look()
        for file in self._files.values():
            # A full disk or a file that vanished must not end the job that is being watched.
            with contextlib.suppress(OSError, FileGone):
                self._copy(file, final=final)

    def tails(self) -> dict[str, str]:
        """The end of each of these logs, by the name of the log."""
        found = {}
        for file in self._files.values():
            with contextlib.suppress(OSError), file.spool.open("rb") as spool:
                spool.seek(max(0, os.fstat(spool.fileno()).st_size - _TAIL_BYTES))
                found[file.spool.name] = spool.read().decode("utf-8", "replace")
        return found

    def _look(self) -> None:
        for folder in (*self._work.folders, *self._work.outputs):
            for path in _entries(folder.path):
                name = name_launcher_log(path)
                key = (folder.path, path)
                if not name or key in self._files or len(self._files) >= _MOST_FILES:
                    continue
                taken = {file.spool.name for file in self._files.values()}
                number = 2
                free = name
                while free in taken:
                    free, number = f"{name}~{number}", number + 1
                spool = self._folder.file_log(free)
                # After a runner that was lost, its copy goes on where it ended.
                offset = spool.stat().st_size if spool.exists() else 0
                self._files[key] = _Followed(folder, path, spool, offset)

    def _copy(self, file: _Followed, *, final: bool) -> None:
        with FolderTree(file.folder.path) as tree:
            source = tree.open_file(file.path)
        try:
            facts = os.fstat(source)
            if file.inode not in (0, facts.st_ino) or facts.st_size < file.offset:
                # Another file, or the same one begun anew: what was read before stays in the log.
                file.offset = 0
            file.inode = facts.st_ino
            end = facts.st_size if final else min(facts.st_size, file.offset + _MOST_PER_TURN)
            if end <= file.offset:
                return
            file.spool.parent.mkdir(mode=0o700, exist_ok=True)
            target = os.open(file.spool, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                while file.offset < end:
                    data = os.pread(source, min(_CHUNK, end - file.offset), file.offset)
                    if not data:
                        break
                    file.offset += len(data)
                    while data:
                        data = data[os.write(target, data) :]
            finally:
                os.close(target)
        finally:
            os.close(source)


def _entries(folder: Path) -> Iterator[str]:
    """Paths of files, the shallow ones first; only so many entries, and only so deep."""
    looked_at = 0
    folders = [""]
    try:
        with FolderTree(folder) as tree:
            while folders and looked_at < _MOST_ENTRIES:
                prefix = folders.pop(0)
                with (
                    contextlib.suppress(OSError),
                    tree.open_folder(prefix.split("/")[:-1] if prefix else []) as here,
                    os.scandir(here) as entries,
                ):
                    for entry in entries:
                        looked_at += 1
                        if looked_at > _MOST_ENTRIES:
                            return
                        path = prefix + entry.name
                        if entry.is_dir(follow_symlinks=False):
                            if path.count("/") < _DEEPEST and entry.name != "__pycache__":
                                folders.append(path + "/")
                        elif entry.is_file(follow_symlinks=False):
                            yield path
    except OSError:
        return
