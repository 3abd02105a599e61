"""The folders of a node: one per run, removed at its end, and one that is kept for what later runs can use."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from trainshed.durable import remove_tree
from trainshed.model.errors import HostUnfit
from trainshed.model.home import RunFolder

__all__ = [
    "UNDELIVERED",
    "bell_file",
    "find_root",
    "forget_old_runs",
    "go_file",
    "keep_runner",
    "make_run_folder",
    "ready_file",
    "require_shared_folder",
    "take_lock",
]

# Nobody holds the lock of a run that was killed; a new one holds it from its first moments on.
_OLD_SECONDS = 600.0
_UNUSED_SECONDS = 30 * 24 * 3600.0
# In the folder of a run whose results the platform never got; such a folder is kept for a while.
UNDELIVERED = "undelivered"
_KEPT_SECONDS = 7 * 24 * 3600.0


def find_root(variables: Mapping[str, str]) -> Path:
    """The folder of this user's runs on this machine: private, and on a disk of the machine."""
    base = variables.get("TRAINSHED_NODE_FOLDER") or variables.get("TMPDIR") or "/tmp"
    root = Path(base).absolute() / f"trainshed-{os.geteuid()}"
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = root.lstat()
    except OSError as error:
        raise HostUnfit(
            f"There is no place for the job on this machine: {error}.",
            hint="Set TRAINSHED_NODE_FOLDER to a folder of the nodes with room for a job.",
            code="node_folder",
        ) from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise HostUnfit(
            f"{root} is not this user's own folder.",
            hint="Remove it, or set TRAINSHED_NODE_FOLDER to another place.",
            code="node_folder",
        )
    return root


def make_run_folder(root: Path, job_id: str, attempt: int, node: int) -> RunFolder:
    """A new folder for one run."""
    path = root / f"run-{job_id[:8]}-{attempt}-{node}-{os.urandom(6).hex()}"
    path.mkdir(mode=0o700)
    return RunFolder(path)


def keep_runner(file: str) -> int:
    """Keep the runner of which a file is a part from being removed, as long as the descriptor is open: parts of it
    are loaded when they are needed. -1 where it lies elsewhere."""
    folder = next((parent for parent in Path(file).parents if parent.name.startswith("runner-")), None)
    if folder is None:
        return -1
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def ready_file(folder: RunFolder) -> Path:
    """Its existence says that this node could begin; the courier tells the platform."""
    return folder.path / "ready"


def go_file(folder: RunFolder) -> Path:
    """Its existence says that all nodes could; the courier makes it when the platform says so."""
    return folder.path / "go"


def bell_file(folder: RunFolder) -> Path:
    """What is rung when the courier is not to wait for its next walk."""
    return folder.path / "bell"


def take_lock(folder: RunFolder) -> int:
    """The proof of life: held as long as one of the run's processes lives."""
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def forget_old_runs(root: Path) -> None:
    """Remove the folders of runs that were killed, and runners of versions that nobody has used for a month."""
    for path in root.glob("runner-*"):
        try:
            if time.time() - path.stat().st_mtime > _UNUSED_SECONDS:
                _remove_unused(path) if path.is_dir() else path.unlink()
        except OSError:
            continue
    for path in root.glob("run-*"):
        try:
            patience = _KEPT_SECONDS if (path / UNDELIVERED).exists() else _OLD_SECONDS
            if time.time() - path.stat().st_mtime < patience:
                continue
            descriptor = os.open(path / "runner.lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
        except OSError:
            continue
        finally:
            os.close(descriptor)


def _remove_unused(folder: Path) -> None:
    """Remove a runner, unless a job runs by it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(folder)
    finally:
        os.close(descriptor)


def require_shared_folder(path: Path) -> int:
    """The permissions of the pool's shared folder, which folders in it get as well.

    A machine that does not have it is refused: what jobs keep would be lost with the machine.
    """
    if not path.is_dir():
        raise HostUnfit(
            f"The pool's shared folder {path} is not on this machine.",
            hint="Mount it on all machines of the pool, or correct shared_folder in the settings.",
            code="shared_folder",
        )
    return stat.S_IMODE(path.stat().st_mode)
