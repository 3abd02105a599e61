"""The limits of a job: by control groups where the platform may make them, by weaker means elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

from trainshed.model.attempt import RankExit
from trainshed.model.launch_plan import Limits
from trainshed.runner.sandbox.control_group import ControlGroup
from trainshed.runner.sandbox.process_tree import choose_processors, count_host_memory_kills, measure_tree
from trainshed.runner.sandbox.spec import Usage

__all__ = ["LimitKeeper"]

DEFAULT_PROCESSES = 4096


class LimitKeeper:
    """Keeps a job within its limits, and knows what it uses."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # What is limited, and how: "memory:cgroup", "memory:watch", "processes:rlimit", ...
        self.in_force: tuple[str, ...] = ()
        # What init must set inside, where no control group does: processors, and number of processes.
        self.processors: list[int] = []
        self.most_processes = 0
        self._group: ControlGroup | None = None
        self._watches_memory = False
        self._ran_out_of_memory = False
        self._host_kills = 0
        self._root = 0
        self._usage = Usage()

    def apply(self) -> None:
        """Put every limit in force that can be before the job exists."""
        self._host_kills = count_host_memory_kills()
        group = self._group = ControlGroup()
        force: list[str] = []
        if self.limits.memory_mb:
            has_limit = group.limit_memory(self.limits.memory_mb << 20)
            self._watches_memory = not has_limit
            force.append("memory:cgroup" if has_limit else "memory:watch")
        most = self.limits.processes or DEFAULT_PROCESSES
        if group.limit_processes(most):
            force.append("processes:cgroup")
        else:
            self.most_processes = most
            force.append("processes:rlimit")
        if self.limits.cpus and group.limit_cpu(self.limits.cpus):
            force.append("cpu:cgroup")
        elif self.limits.cpus:
            self.processors = choose_processors(self.limits.cpus, os.getpid())
            force += ["cpu:affinity"] if self.processors else []
        self.in_force = tuple(force)

    def adopt(self, pid: int) -> bool:
        """Take the job's first process under the limits; what it starts later is under them too."""
        self._root = pid
        return self._group is None or not self._group.folders or self._group.add(pid)

    def is_over_memory(self) -> bool:
        """Where only we watch the memory: whether the job has passed its limit, for ever once it has."""
        if self._watches_memory and self.usage().memory_bytes > self.limits.memory_mb << 20:
            self._ran_out_of_memory = True
        return self._ran_out_of_memory and self._watches_memory

    def add_final(self, cpu_seconds: float, peak_memory: int) -> None:
        """What init counted at the end: all CPU time, and the memory of the largest process."""
        known = self._usage
        self._usage = Usage(
            max(known.cpu_seconds, cpu_seconds),
            known.memory_bytes,
            max(known.peak_memory_bytes, peak_memory),
            known.processes,
        )

    def usage(self) -> Usage:
        """What the job uses; the last known CPU time and peak once it has ended."""
        latest = Usage()
        if self._group is not None and {"memory", "pids"} <= set(self._group.folders):
            latest = self._group.read_usage()
        elif self._root:
            latest = measure_tree(self._root)
        self._usage = Usage(
            max(latest.cpu_seconds, self._usage.cpu_seconds),
            latest.memory_bytes,
            max(latest.peak_memory_bytes, latest.memory_bytes, self._usage.peak_memory_bytes),
            latest.processes,
        )
        return self._usage

    def has_run_out_of_memory(self, exits: Iterable[RankExit]) -> bool:
        """Whether a process of the job was killed for want of memory."""
        if self._ran_out_of_memory:
            return True
        if self._group is not None and "memory" in self._group.folders:
            self._ran_out_of_memory = self._group.count_memory_kills() > 0
        else:
            # Nobody counts for this job alone: an unexplained KILL while the host ran out of memory.
            was_killed = any(item.signal == signal.SIGKILL and not item.ended_by_platform for item in exits)
            self._ran_out_of_memory = was_killed and count_host_memory_kills() > self._host_kills
        return self._ran_out_of_memory

    def end(self) -> None:
        """The job's first process is gone: its number may soon be another's."""
        self.usage()
        self._root = 0

    def close(self, exits: Iterable[RankExit]) -> None:
        """Remember what is known, and remove the control group with all that is left in it."""
        self.has_run_out_of_memory(exits)
        self.usage()
        self._root = 0
        if self._group is not None:
            self._group.remove()
            self._group = None
