"""Folders that outlive jobs: the homes of a workspace's users and its data, shared by nodes and jobs."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from trainshed.model.attempt import Ending
from trainshed.model.launch_plan import KeptFolder, NodeLaunch
from trainshed.runner.sandbox import Mount
from trainshed.runner.site import Site

__all__ = ["KeptFoldersWatch", "kept_folder_path", "mount_kept_folders"]

_LOOK_EVERY = 30.0
# What a workspace that is over its quota may still write: enough to clean up, not enough to go on.
_SLACK = 64 << 20


def kept_folder_path(root: Path, folder: KeptFolder) -> Path:
    """Where a kept folder lies below the workspace's own root."""
    return root / "home" / folder.owner if folder.kind == "home" else root / "data"


def mount_kept_folders(launch: NodeLaunch, site: Site) -> list[Mount]:
    """The kept folders of a job, made on first use, as they are seen inside its sandbox."""
    mounts = []
    for folder in launch.kept:
        path = kept_folder_path(Path(site.kept_folders), folder)
        _make_folder(path, site.kept_mode)
        if site.uid is not None and path.stat().st_uid != site.uid:
            os.chown(path, site.uid, site.uid)
        mounts.append(Mount(path, folder.path, writable=True))
    if launch.kept and site.kept_mode & stat.S_IWGRP:
        # Jobs of several accounts share these folders: what one of them makes there, the group may change.
        os.umask(0o002)
    return mounts


def _make_folder(path: Path, mode: int) -> None:
    """Make a folder and those above it that are missing; whatever the umask, they get the permissions."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            # Another node of the job was quicker.
            continue
        folder.chmod(mode)


class KeptFoldersWatch:
    """Measures a workspace's kept folders in the background, and ends a job that fills them beyond the quota.

    A workspace that is over its quota already may still run jobs, so that they can clean up; they may not add to it.
    """

    def __init__(self, root: Path, quota: int) -> None:
        self._root = root
        self._quota = quota
        self._allowed = 0
        self._used = 0
        self._over = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to measure, where there is a quota."""
        if self._quota:
            self._thread = threading.Thread(target=self._watch, name="kept-folders", daemon=True)
            self._thread.start()

    def check(self) -> Ending | None:
        """The ending of a job that went over the quota."""
        if not self._over.is_set():
            return None
        return Ending(
            "failed",
            "limit",
            "kept_folders_full",
            f"The workspace's home and data folders hold {self._used / 1e9:.2f} GB; "
            f"{self._quota / 1e9:.2f} GB are allowed.",
            "Remove files there (a job of the same workspace can), or ask for a larger kept_quota_gb.",
        )

    def stop(self) -> None:
        """Measure no more."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._over.is_set():
            self._used = measure_folder(self._root, self._stop)
            if self._stop.is_set():
                return
            self._allowed = self._allowed or max(self._quota, self._used + _SLACK)
            if self._used > self._allowed:
                self._over.set()
            self._stop.wait(_LOOK_EVERY)


def measure_folder(root: Path, stop: threading.Event) -> int:
    """The bytes on disk of everything below a folder; a file with several names counts once."""
    total, seen = 0, set[tuple[int, int]]()
    for _, _, files, here in os.fwalk(root, follow_symlinks=False, onerror=lambda _: None):
        if stop.is_set():
            break
        for name in files:
            try:
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
            except OSError:
                continue
            if found.st_nlink > 1:
                if (found.st_dev, found.st_ino) in seen:
                    continue
                seen.add((found.st_dev, found.st_ino))
            total += found.st_blocks * 512
    return total
