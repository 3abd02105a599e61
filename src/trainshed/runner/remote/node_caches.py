"""What a node keeps for later jobs: inputs, built environments, packages. By age and by size, the least used go first.

Whoever uses an environment holds its lock, so that nothing is removed under a running job. Inputs have locks of
their own.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from trainshed.durable import remove_tree
from trainshed.model.late_pattern import late_pattern

__all__ = ["has_environment", "hold_environment", "input_cache", "is_tidy", "tidy_node"]

_DIGEST = late_pattern(r"[0-9a-f]{64}")
_TIDY_EVERY = 3600.0
_UNUSED_PACKAGES_SECONDS = 30 * 24 * 3600.0


def input_cache(root: Path) -> Path:
    """Where trees of inputs are kept."""
    return root / "inputs"


def hold_environment(root: Path, digest: str) -> int:
    """Keep an environment from being removed, as long as the descriptor is open; -1 where there is nothing to hold."""
    if not _DIGEST.fullmatch(digest):
        return -1
    path = _use_file(root, digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.utime(descriptor)
    return descriptor


def has_environment(root: Path, digest: str) -> bool:
    """Whether an environment is there, so that nothing is needed to build it. (`environment.build` looks again.)"""
    try:
        marker = json.loads((root / "environments" / digest / ".trainshed.json").read_bytes())
        return bool(_DIGEST.fullmatch(digest)) and os.path.exists(marker["executable"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_tidy(root: Path, *, every: float = _TIDY_EVERY) -> bool:
    """Whether this machine was tidied up within the last hour."""
    try:
        facts = (root / "tidied").stat()
    except OSError:
        return False
    return bool(facts.st_size) and time.time() - facts.st_mtime < every


def tidy_node(root: Path, limits: Mapping[str, float], *, every: float = _TIDY_EVERY, nice: int = 0) -> int:
    """Remove what was not used for long, and what is too much; at most once an hour. How many things were removed."""
    # Whatever else this machine does goes first.
    os.nice(nice)
    # Only here: a node's start waits for every import above.
    from trainshed.store.staged_tree import TreeCache

    mark = os.open(root / "tidied", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        facts = os.fstat(mark)
        if facts.st_size and time.time() - facts.st_mtime < every:
            return 0
        os.pwrite(mark, b"x", 0)
        os.utime(mark)
        removed = TreeCache(input_cache(root)).sweep(
            unused_for=limits["input_seconds"], largest=int(limits["input_bytes"])
        )
        removed += _tidy_environments(root, limits["environment_seconds"], int(limits["environment_bytes"]))
        return removed + _tidy_packages(root)
    except BlockingIOError:
        # Another run of this machine is at it.
        return 0
    finally:
        os.close(mark)


def _use_file(root: Path, digest: str) -> Path:
    return root / "environments" / "locks" / f"{digest}.used"


def _tidy_environments(root: Path, unused_for: float, largest: int) -> int:
    folder, removed, now = root / "environments", 0, time.time()
    for path in folder.glob("removed-*"):
        remove_tree(path)
    kept: list[tuple[float, int, str]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if not _DIGEST.fullmatch(path.name):
            continue
        used = _used_at(root, path)
        if now - used > unused_for and _remove_environment(root, path):
            removed += 1
        else:
            kept.append((used, _size(root, path), path.name))
    total = sum(size for _, size, _ in kept)
    for _, size, name in sorted(kept):
        if total <= largest:
            break
        if _remove_environment(root, folder / name):
            total -= size
            removed += 1
    return removed


def _used_at(root: Path, path: Path) -> float:
    try:
        return _use_file(root, path.name).stat().st_mtime
    except FileNotFoundError:
        # Of a job that began before uses were written down, or that never began.
        return path.stat().st_mtime


def _remove_environment(root: Path, path: Path) -> bool:
    use = _use_file(root, path.name)
    use.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(use, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Out of sight by one step: whoever comes now builds it again.
        trash = path.with_name(f"removed-{os.getpid()}-{path.name[:16]}")
        path.rename(trash)
    except OSError:
        return False
    finally:
        os.close(lock)
    remove_tree(trash)
    _size_file(root, path).unlink(missing_ok=True)
    return True


def _size_file(root: Path, path: Path) -> Path:
    return root / "environments" / "locks" / f"{path.name}.size"


def _size(root: Path, path: Path) -> int:
    """The bytes of an environment, measured once: it does not change."""
    file = _size_file(root, path)
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):
        pass
    total = 0
    for _, _, names, here in os.fwalk(path, follow_symlinks=False, onerror=lambda _: None):
        for name in names:
            try:
                total += os.stat(name, dir_fd=here, follow_symlinks=False).st_blocks * 512
            except OSError:
                continue
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(total), "ascii")
    return total


def _tidy_packages(root: Path) -> int:
    removed = 0
    for path in (*root.glob("ssh-packages-*"), *root.glob(".ssh-packages-*"), *root.glob("authority-*.pem")):
        try:
            if time.time() - path.lstat().st_mtime > _UNUSED_PACKAGES_SECONDS:
                remove_tree(path) if path.is_dir() else path.unlink()
                removed += 1
        except OSError:
            continue
    return removed
