"""A writable view of the system's own folders, for scripts that install into them as they would in a container."""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.runner.sandbox import Mount, OverlayMount

__all__ = ["lay_over_system"]

# So deep below /usr/local the job finds folders of its own; what lies deeper it can replace but not change.
_DEPTH = 3


def lay_over_system(folder: Path, uid: int | None) -> tuple[list[Mount], list[OverlayMount]]:
    """The mounts that let a job write to /opt, /var and /usr/local; all of it goes to `folder` and ends with the job."""
    mounts = [Mount(folder / name, f"/{name}", writable=True) for name in ("opt", "var")]
    for mount in mounts:
        mount.source.mkdir(parents=True, exist_ok=True)
    for name in ("cache", "lib", "log", "run"):
        (folder / "var" / name).mkdir(exist_ok=True)
    upper, work = folder / "usr-local" / "upper", folder / "usr-local" / "work"
    for path in (upper, work):
        path.mkdir(parents=True, exist_ok=True)
        if uid is not None:
            os.chown(path, uid, uid)
    lower = Path("/usr/local")
    if not lower.is_dir():
        return mounts, []
    if uid is None:
        # The folders below belong to root, whom an ordinary user cannot stand in for: the job gets its own
        # folders of the same names, and the overlay shows their content together.
        _copy_folders(lower, upper, _DEPTH)
    return mounts, [OverlayMount(lower, upper, work, "/usr/local")]


def _copy_folders(source: Path, target: Path, depth: int) -> None:
    if not depth:
        return
    try:
        entries = [entry for entry in os.scandir(source) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in entries:
        (target / entry.name).mkdir(exist_ok=True)
        _copy_folders(Path(entry.path), target / entry.name, depth - 1)
