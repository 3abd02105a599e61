"""Finds out when a node's processes do nothing: no device in use, no processor time, no data moved."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trainshed.runner.sandbox.inside.processes import find_descendants

__all__ = ["Activity", "IdleWatch", "count_bytes"]

# What processes use that only wait for something, for each rank: timers, watchdogs, a loop that looks now and then.
_IDLE_CORES = 0.02
# Data that come more slowly than this are no load that anybody waits for.
_IDLE_BYTES = 4096.0
_SHORTEST_LOOK, _LONGEST_LOOK = 0.5, 60.0


class Activity(NamedTuple):
    """The processor time of a node so far, and whether a device or the platform works for it at this moment."""

    cpu_seconds: float
    is_served: bool = False


class IdleWatch:
    """Looks now and then at what was used since the last look. `idle_since` is when the idleness began, or 0.

    Whether the job is idle is decided over all its nodes: one may rightly wait for the work of another. To count bytes
    takes a look at every process: that is only done while nothing else shows any work.
    """

    def __init__(
        self, after: float, ranks: int, measure: Callable[[], Activity], count_bytes: Callable[[], int]
    ) -> None:
        self._after = after
        self._measure = measure
        self._count_bytes = count_bytes
        self._cores = _IDLE_CORES * max(1, ranks)
        self._next_look = 0.0
        self._last: tuple[float, float] | None = None
        self._moved: tuple[float, int] | None = None
        self._last_active = 0.0
        self.idle_since = 0.0

    def look(self, now: float) -> bool:
        """Look again, if it is time to; True when `idle_since` has changed."""
        if not self._after or now < self._next_look:
            return False
        # Long looks even out what a process that waits does now and then.
        self._next_look = now + min(_LONGEST_LOOK, max(_SHORTEST_LOOK, self._after / 6))
        found = self._measure()
        then, used = self._last or (now, 0.0)
        self._last = (now, found.cpu_seconds)
        if then == now or found.is_served or found.cpu_seconds - used > self._cores * (now - then):
            self._last_active, self._moved = now, None
        elif self._has_moved(now):
            self._last_active = now
        idle = now - self._last_active
        is_idle = idle >= self._after
        if is_idle == bool(self.idle_since):
            return False
        self.idle_since = time.time() - idle if is_idle else 0.0
        return True

    def _has_moved(self, now: float) -> bool:
        """Whether data have come or gone since the last look; at the first one nobody knows."""
        then, before = self._moved or (now, 0)
        moved = self._count_bytes()
        self._moved = (now, moved)
        # Processes that ended take their bytes with them: a smaller sum is no work.
        return then != now and moved - before > _IDLE_BYTES * (now - then)


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
