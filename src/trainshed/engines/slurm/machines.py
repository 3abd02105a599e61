"""The cluster's machines: what they have, which are left out, and which of them was at fault for a failed start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainshed.engines.slurm.answers import (
    QueuedJob,
    read_allocation,
    read_minutes,
    read_nodes,
    read_partitions,
    read_setting,
)
from trainshed.engines.slurm.attempt_folder import AttemptFolder, Submission
from trainshed.engines.slurm.bad_nodes import BadNodes
from trainshed.engines.slurm.commands import Commands, SlurmRefusal
from trainshed.model.attempt import NodeReport
from trainshed.model.errors import Unavailable
from trainshed.model.flavor import Node
from trainshed.model.pools import Pool

__all__ = ["Machines"]

# What speaks against the machine on which it happened.
_AT_FAULT = ("runner_lost", "no_python", "platform_unreachable", "no_room", "node_folder", "undelivered")
# What speaks against those of the job's machines that Slurm itself has given up.
_ONE_OF_THEM = ("node_failed",)
# A site's settings change rarely, and a change that comes late does no harm.
_SETTINGS_SECONDS = 600.0


class Machines:
    """What Slurm says of its machines, and what the platform remembers of them."""

    def __init__(self, commands: Commands, bad_nodes: BadNodes, clock: Callable[[], float]) -> None:
        self._commands = commands
        self._bad_nodes = bad_nodes
        self._clock = clock
        self._partitions: dict[str, dict[str, str]] = {}
        # How the site preempts jobs, and when it was asked for that.
        self._preemption, self._asked_at = "", 0.0

    def list_all(self, pools: Sequence[Pool]) -> list[Node]:
        """The machines of all pools; one that belongs to several of them stands there for each."""
        text = self._show_nodes()
        self._read_partitions()
        nodes: list[Node] = []
        for pool in pools:
            nodes += read_nodes(text, pool.name, pool.partition or self._default(), pool.gres)
        bad = set(self._bad_nodes.names(self._clock()))
        return [
            replace(node, state="drained", reason="Starts failed here again and again; left out for an hour.")
            if node.name in bad and node.state == "ready"
            else node
            for node in nodes
        ]

    def longest(self, pool: Pool) -> int:
        """For how many minutes a pool's partition runs a job; 0 where it sets no limit, or does not tell."""
        limits = [read_minutes(row.get("MaxTime", "")) for row in self._partitions_of(pool)]
        return max(limits) if all(limits) else 0

    def warns(self, pool: Pool) -> bool:
        """Whether a job may hear of its end some time before, as far as Slurm and the pool's options tell."""
        if any(option.startswith(("-p", "--partition", "--signal")) for option in pool.options):
            return True
        graces = [row.get("GraceTime", "") for row in self._partitions_of(pool)]
        # By quality of service a job may have a grace time of which its partition knows nothing.
        return set(graces) != {"0"} or self._how_preempted() not in ("preempt/none", "preempt/partition_prio")

    def _partitions_of(self, pool: Pool) -> list[dict[str, str]]:
        """What Slurm says of a pool's partitions, nothing where it does not answer."""
        if not self._partitions:
            try:
                self._read_partitions()
            except (SlurmRefusal, Unavailable):
                return [{}]
        return [self._partitions.get(name, {}) for name in (pool.partition or self._default()).split(",")]

    def _how_preempted(self) -> str:
        now = self._clock()
        if not self._preemption or now - self._asked_at > _SETTINGS_SECONDS:
            try:
                self._preemption = read_setting(
                    self._commands.run("scontrol", "show", "config").out, "PreemptType"
                )
            except (SlurmRefusal, Unavailable):
                return ""
            self._asked_at = now
        return self._preemption

    def _read_partitions(self) -> None:
        text = self._commands.run("scontrol", "-a", "-o", "show", "partitions").out
        self._partitions = read_partitions(text)

    def _default(self) -> str:
        return next((name for name, row in self._partitions.items() if row.get("Default") == "YES"), "")

    def left_out(self, pool: Pool, wanted: int) -> list[str]:
        """Machines of a pool that a job must not get: better a bad one than none, though."""
        bad = self._bad_nodes.names(self._clock())
        if not bad:
            return []
        try:
            text = self._show_nodes()
        except (SlurmRefusal, Unavailable):
            return []
        names = [node.name for node in read_nodes(text, pool.name, pool.partition, pool.gres)]
        mine = [name for name in bad if name in names]
        return mine if len(names) - len(mine) >= max(wanted, len(names) / 2) else []

    def learn(
        self,
        folder: AttemptFolder,
        submission: Submission,
        reports: Sequence[NodeReport | None],
        find_job: Callable[[], QueuedJob | None],
    ) -> None:
        """Remember what an attempt that has ended says about its machines. To be told twice does no harm."""
        blamed: dict[str, str] = {}
        hosts: list[str] | None = None
        endings = [report.ending if report is not None else None for report in reports]
        for index, ending in enumerate(endings):
            if ending is None or ending.code not in (*_AT_FAULT, *_ONE_OF_THEM):
                continue
            host = folder.host(index)
            if not host:
                # It never said where it was: the job's machines are numbered in their order.
                hosts = self._hosts_of(find_job()) if hosts is None else hosts
                host = hosts[index] if len(hosts) == submission.nodes else ""
            if host and (ending.code in _AT_FAULT or self._is_down(host)):
                blamed[host] = f"{submission.name}/{index}"
        self._bad_nodes.blame(blamed, self._clock())
        if all(ending is not None and ending.outcome == "completed" for ending in endings):
            self._bad_nodes.forgive([folder.host(index) for index in range(submission.nodes)], self._clock())

    def _is_down(self, host: str) -> bool:
        try:
            nodes = read_nodes(self._show_nodes(), "", "", {})
        except (SlurmRefusal, Unavailable):
            return False
        return any(node.name == host and node.state == "down" for node in nodes)

    def _hosts_of(self, job: QueuedJob | None) -> list[str]:
        if job is None:
            return []
        try:
            text = self._commands.run("scontrol", "-d", "show", "job", str(job.id)).out
        except (SlurmRefusal, Unavailable):
            return []
        return [item.node for item in read_allocation(text)] if f"JobName={job.name}" in text else []

    def _show_nodes(self) -> str:
        # Machines of hidden partitions are machines, too.
        return self._commands.run("scontrol", "-a", "-o", "show", "nodes").out
