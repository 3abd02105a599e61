"""Finds out when a node's processes do nothing: no device in use, no processor time, no data moved."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trainshed.runner.sandbox.init import find_descendants

__all__ = ["Activity", "IdleWatch", "count_bytes"]

# What processes use that only wait for something, for each rank: timers, watchdogs, a loop that looks now and then.
_IDLE_CORES = 0.02
# Data that come more slowly than this are no load that anybody waits for.
_IDLE_BYTES = 4096.0
_SHORTEST_LOOK, _LONGEST_LOOK = 0.5, 60.0


class Activity(NamedTuple):
    """What a node has done so far, and whether a device or the platform works for it at this moment."""

    cpu_seconds: float
    moved_bytes: int
    is_served: bool = False


class IdleWatch:
    """Looks now and then at what was used since the last look. `idle_since` is when the idleness began, or 0.

    Whether the job is idle is decided over all its nodes: one may rightly wait for the work of another.
    """

    def __init__(self, after: float, ranks: int, measure: Callable[[], Activity]) -> None:
        self._after = after
        self._measure = measure
        self._cores = _IDLE_CORES * max(1, ranks)
        self._next_look = 0.0
        self._last: tuple[float, Activity] | None = None
        self._last_active = 0.0
        self.idle_since = 0.0

    def look(self, now: float) -> bool:
        """Look again, if it is time to; True when `idle_since` has changed."""
        if not self._after or now < self._next_look:
            return False
        # Long looks even out what a process that waits does now and then.
        self._next_look = now + min(_LONGEST_LOOK, max(_SHORTEST_LOOK, self._after / 6))
        found = self._measure()
        then, before = self._last or (now, None)
        self._last = (now, found)
        if before is None or found.is_served or self._has_worked(before, found, now - then):
            self._last_active = now
        idle = now - self._last_active
        is_idle = idle >= self._after
        if is_idle == bool(self.idle_since):
            return False
        self.idle_since = time.time() - idle if is_idle else 0.0
        return True

    def _has_worked(self, before: Activity, found: Activity, seconds: float) -> bool:
        # Processes that ended take their bytes with them: a smaller sum is no work.
        return (
            found.cpu_seconds - before.cpu_seconds > self._cores * seconds
            or found.moved_bytes - before.moved_bytes > _IDLE_BYTES * seconds
        )


def count_bytes(init_pid: int) -> int:
    """The bytes that a sandbox's processes have moved so far: files, pipes, and its network if that is its own."""
    total = _count_network_bytes(init_pid)
    for pid in find_descendants(init_pid):
        try:
            facts = Path(f"/proc/{pid}/io").read_bytes().split()
            # rchar and wchar hold what passed through calls, read_bytes what a mapped file fetched from the disk.
            total += int(facts[1]) + int(facts[3]) + int(facts[9])
        except (OSError, IndexError, ValueError):
            continue
    return total


def _count_network_bytes(init_pid: int) -> int:
    """What has come over a sandbox's own network; 0 where it shares the machine's, which others use as well."""
    try:
        if os.stat(f"/proc/{init_pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            return 0
        lines = Path(f"/proc/{init_pid}/net/dev").read_bytes().splitlines()[2:]
        return sum(int(line.partition(b":")[2].split()[0]) for line in lines)
    except (OSError, IndexError, ValueError):
        return 0
