"""Finds out when nothing but `sleep` is left of a command: the training has ended and the node is held open."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["HoldWatch", "only_sleeps"]

_LOOK_EVERY = 5.0
# Programs that wait for others and do nothing themselves.
_WAITING = frozenset({"bash", "sh", "dash", "zsh", "env", "timeout", "nohup", "stdbuf", "tee", "tail", "cat"})
# Programs of the platform inside the sandbox, by their path: they are no part of the command.
_PLATFORM = b"/opt/trainshed/"


class HoldWatch:
    """Looks at a sandbox's processes now and then. `held_since` is when only sleepers were first seen, or 0."""

    def __init__(self, init_pid: int, *, is_wanted: bool) -> None:
        self._init_pid = init_pid
        self._is_wanted = is_wanted
        self._next_look = 0.0
        self.held_since = 0.0

    def look(self, now: float) -> bool:
        """Look again, if it is time to; True when `held_since` has changed."""
        if not self._is_wanted or now < self._next_look:
            return False
        self._next_look = now + _LOOK_EVERY
        is_held = only_sleeps(self._init_pid)
        if is_held == bool(self.held_since):
            return False
        self.held_since = time.time() if is_held else 0.0
        return True


def only_sleeps(init_pid: int) -> bool:
    """Whether every process that the command has left only sleeps, or waits for one that does."""
    children = _children_by_parent()
    pending = [pid for pid in children.get(init_pid, ()) if _PLATFORM not in _read(pid, "cmdline")]
    sleepers = 0
    while pending:
        pid = pending.pop()
        name = _read(pid, "comm").strip().decode("utf-8", "replace")
        below = children.get(pid, [])
        if name == "sleep" and not below:
            sleepers += 1
        elif name not in _WAITING or (not below and name not in ("tee", "tail", "cat")):
            return False
        pending += below
    return sleepers > 0


def _children_by_parent() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _read(int(entry), "stat").rpartition(b")")[2].split()
            # A process that has ended and waits to be collected does nothing any more.
            if len(fields) > 1 and fields[0] != b"Z":
                children.setdefault(int(fields[1]), []).append(int(entry))
    return children


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
