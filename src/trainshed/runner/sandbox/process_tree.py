"""What can be known and limited about a job's processes without control groups, through /proc."""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.runner.sandbox.inside.processes import find_descendants
from trainshed.runner.sandbox.spec import Usage

__all__ = ["choose_processors", "count_host_memory_kills", "measure_tree"]

_TICKS = os.sysconf("SC_CLK_TCK")


def measure_tree(root: int) -> Usage:
    """CPU time, memory and number of the processes below one. Memory is what is theirs alone plus shared
    memory segments; the time of processes that have ended is part of their parents'."""
    cpu, memory, count = 0.0, 0, 0
    for pid in (root, *find_descendants(root)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            status = Path(f"/proc/{pid}/status").read_bytes()
        except OSError:
            continue
        cpu += sum(int(value) for value in fields[11:15]) / _TICKS
        memory += _read_kilobytes(status, b"RssAnon:") + _read_kilobytes(status, b"RssShmem:")
        count += int(fields[17])
    return Usage(cpu, memory * 1024, 0, count)


def _read_kilobytes(status: bytes, name: bytes) -> int:
    _, found, rest = status.partition(name)
    return int(rest.split(maxsplit=1)[0]) if found else 0


def count_host_memory_kills() -> int:
    """How many processes the kernel has killed on this machine for want of memory, since it started."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    _, found, rest = text.partition("\noom_kill ")
    return int(rest.split(maxsplit=1)[0]) if found else 0


def choose_processors(cpus: float, seed: int) -> list[int]:
    """As many processors as `cpus` needs, of those we may use; jobs begin at different ones."""
    available = sorted(os.sched_getaffinity(0))
    wanted = max(1, -int(-cpus // 1))
    if wanted >= len(available):
        return []
    first = seed % len(available)
    return [available[(first + step) % len(available)] for step in range(wanted)]
