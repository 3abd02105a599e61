"""Finds processes of a run whose runner is dead, and ends them.

Bubblewrap dies with the runner, and the sandbox with bubblewrap. One gap is left: killed between making the
sandbox's first process and telling it to go on, bubblewrap leaves that process waiting for ever. It has run
nothing of the job, but it is there, and it holds the job's log open.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["end_stragglers"]


def end_stragglers(logs: Iterable[Path]) -> list[int]:
    """Kill every process that can still write to one of these logs; their numbers.

    Only to be called when the run's own runner is gone. Readers (a follower of the log) are left alone.
    """
    wanted = set()
    for log in logs:
        try:
            found = log.stat(follow_symlinks=False)
        except OSError:
            continue
        wanted.add((found.st_dev, found.st_ino))
    ended = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        pid = int(entry.name)
        try:
            # A descriptor of the process first, so that no stranger who gets its number later is hit.
            process = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            if wanted & set(_files_written_by(pid)):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                ended.append(pid)
        except OSError:
            pass
        finally:
            os.close(process)
    return ended


def _files_written_by(pid: int) -> Iterator[tuple[int, int]]:
    """Device and inode of every file that a process has open for writing."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            facts = Path(f"/proc/{pid}/fdinfo/{name}").read_text("ascii").splitlines()
            flags = next(int(line.split()[1], 8) for line in facts if line.startswith("flags:"))
            if flags & os.O_ACCMODE != os.O_RDONLY:
                found = os.stat(f"/proc/{pid}/fd/{name}")
                yield found.st_dev, found.st_ino
        except (OSError, StopIteration, ValueError):
            continue
