"""Whether a machine can carry a rehearsal: what its processes will need against what there is."""

from __future__ import annotations

from collections.abc import Sequence

from trainshed.model.errors import InvalidInput
from trainshed.model.flavor import Node
from trainshed.model.size import count_cores

__all__ = ["check_load", "warn_of_load"]

# What a process of a framework takes before the script's own data, in MB: import, graph, one small model.
_PROCESS_MB = {"mindspore": 700, "tensorflow": 700, "pytorch": 450, "paddle": 450}
_PLAIN_MB = 60
# So many processes per core still make progress; beyond, start-up alone takes minutes.
_PROCESSES_PER_CORE = 12
# Beyond so many not even that: such a job would take the machine from everybody else.
_MOST_PER_CORE = 128
# A part of the memory is the machine's own.
_SHARE = 0.9


def check_load(processes: int, nodes: int, machines: Sequence[Node]) -> None:
    """Refuse a rehearsal of `nodes` x `processes` that no machine here could even start."""
    most = max((int(machine.cpus * _MOST_PER_CORE) for machine in machines), default=0)
    if processes * nodes > most:
        raise InvalidInput(
            f"A rehearsal of {nodes} x {processes} is {nodes * processes} processes; the largest machine here carries "
            f"{most}.",
            hint="Rehearse with fewer nodes: what goes wrong with 2 goes wrong with more.",
            code="never_fits",
            where="nodes",
        )


def warn_of_load(engine: str, processes: int, nodes: int, machines: Sequence[Node]) -> list[str]:
    """What to say before a rehearsal of `nodes` x `processes` starts on these machines; nothing when it fits."""
    ready = [machine for machine in machines if machine.state == "ready"]
    if not ready:
        return []
    # All nodes of a rehearsal may land on one machine.
    machine = max(ready, key=lambda found: found.memory_mb)
    count = processes * nodes
    need = count * next((size for name, size in _PROCESS_MB.items() if engine.startswith(name)), _PLAIN_MB)
    warnings = []
    if need > machine.memory_mb * _SHARE:
        warnings.append(
            f"This rehearsal starts {count} processes, which need about {need / 1024:.1f} GiB before any data; "
            f"{machine.name} has {machine.memory_mb / 1024:.1f} GiB. Rehearse with fewer nodes or devices, or on a "
            "machine with more memory."
        )
    if count > machine.cpus * _PROCESSES_PER_CORE:
        warnings.append(
            f"This rehearsal starts {count} processes on {count_cores(machine.cpus)}: expect it to be slow, and time-outs of "
            "frameworks that wait for one another. Rehearse with fewer devices first."
        )
    return warnings
