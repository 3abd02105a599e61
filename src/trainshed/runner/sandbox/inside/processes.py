"""The processes that can be seen, as /proc tells of them."""

from __future__ import annotations

import os

__all__ = [
    "HASTY_LAUNCHERS",
    "THEIR_HANDS",
    "Process",
    "descendants_of",
    "find_descendants",
    "has_processes",
    "list_processes",
    "send",
]

# Launchers that end what they started a second or two after they got SIGTERM themselves.
HASTY_LAUNCHERS = (b"mpirun", b"mpiexec", b"orterun", b"orted", b"prterun", b"prte", b"prted")
# By these they hold their processes on other nodes.
THEIR_HANDS = (b"ssh", b"srun")


def find_descendants(ancestor: int) -> list[int]:
    """Every living process below one, found through /proc."""
    return descendants_of(ancestor, list_processes())


class Process:
    """A living process, as /proc tells."""

    def __init__(self, name: bytes, fields: list[bytes]) -> None:
        self.name = name
        self.parent, self.group = int(fields[1]), int(fields[2])
        # 0: none.
        self.terminal = int(fields[4])


def list_processes() -> dict[int, Process]:
    """Every living process that can be seen."""
    processes: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            file = os.open(f"/proc/{name}/stat", os.O_RDONLY)
            head, _, rest = os.read(file, 4096).rpartition(b")")
            fields = rest.split()
            os.close(file)
        except OSError:
            continue
        if fields[0] != b"Z":
            processes[int(name)] = Process(head.partition(b"(")[2], fields)
    return processes


def descendants_of(ancestor: int, processes: dict[int, Process]) -> list[int]:
    """Those of the processes that are below one."""
    found: list[int] = []
    seen = {ancestor}
    grew = True
    while grew:
        grew = False
        for pid, process in processes.items():
            if process.parent in seen and pid not in seen:
                seen.add(pid)
                found.append(pid)
                grew = True
    return found


def has_processes(group: int) -> bool:
    """Whether a process group still has a member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def send(pid: int, number: int) -> None:
    """Send a signal to a process, which may be gone already."""
    try:
        os.kill(pid, number)
    except OSError:
        pass
