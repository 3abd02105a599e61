"""Keeps one job from filling the disk that the whole platform lives on."""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.model.attempt import Ending
from trainshed.model.errors import HostUnfit

__all__ = ["DiskWatch"]

# A job that takes less than this share of the reserve is not the one that fills the disk.
_GUILTY_SHARE = 0.5
# Below this share of the reserve no job starts.
_START_SHARE = 0.25
_MOST_ENTRIES = 300_000


class DiskWatch:
    """Watches the free room of a run folder's disk against the reserve that must stay."""

    def __init__(self, folder: Path, reserve_bytes: int) -> None:
        self._folder = folder
        self._reserve = reserve_bytes

    def require_room(self) -> None:
        """Refuse to start a job on a disk that is as good as full."""
        free = self._free()
        if free < self._reserve * _START_SHARE:
            raise HostUnfit(
                f"The node's disk is full: {free / 1e6:.0f} MB are free.",
                hint="Remove jobs and objects that are no longer needed (`trainshed delete`, `trainshed obs rm`), "
                "then rerun the job.",
                code="disk_full",
            )

    def check(self) -> Ending | None:
        """Why this job must end, if it has eaten into the reserve; cheap as long as there is room."""
        free = self._free()
        if free >= self._reserve:
            return None
        used = self._measure()
        if used < self._reserve * _GUILTY_SHARE:
            return None
        return Ending(
            "failed",
            "user",
            "disk_full",
            f"The node's disk is nearly full ({free / 1e6:.0f} MB free) and this job holds {used / 1e6:.0f} MB of it.",
            "Write less (fewer checkpoints, smaller caches), or ask the administrator for room.",
        )

    def _free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def _measure(self) -> int:
        """How much room the job's own folders take on this disk."""
        total = entries = 0
        device = os.stat(self._folder).st_dev
        for _, folders, files, here in os.fwalk(self._folder, follow_symlinks=False):
            for name in files:
                try:
                    found = os.stat(name, dir_fd=here, follow_symlinks=False)
                except OSError:
                    continue
                # Files with more names than one are shared with others: a link of ours costs nothing.
                if found.st_dev == device and found.st_nlink == 1:
                    total += found.st_blocks * 512
            entries += len(files) + len(folders)
            if entries > _MOST_ENTRIES:
                break
        return total
