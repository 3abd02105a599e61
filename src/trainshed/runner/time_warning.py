"""Warns a node's processes before their time limit, so that they can write a checkpoint.

The signals that suit a warning end a process that does not expect them. Only processes that handle the signal get
it: a shell, a launcher or a script that knows nothing of it is left alone. Launchers of MPI pass it on by themselves:
they do not get it, so that nobody is told twice.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trainshed.runner.sandbox.inside.processes import HASTY_LAUNCHERS, find_descendants

__all__ = ["TimeWarning", "find_listeners"]

_LOOK_EVERY = 2.0
# Programs of the platform inside the sandbox, by their path.
_PLATFORM = b"/opt/trainshed/"


class _Process(NamedTuple):
    pid: int
    parent: int
    started: bytes
    command: bytes
    listens: bool


class TimeWarning:
    """Tells every process that handles the signal, once each, from `at` on; also one that starts to listen later."""

    def __init__(
        self, init_pid: int, name: str, at: float | None, ends: float, say: Callable[[str], None]
    ) -> None:
        self._init_pid = init_pid
        self._number = signal.Signals[f"SIG{name}"]
        self._at = at
        self._ends = ends
        self._say = say
        self._told: set[tuple[int, bytes]] = set()
        self._next_look = 0.0
        self._has_spoken = False

    def look(self, now: float) -> None:
        """Tell who is not told yet, if it is time to."""
        if self._at is None or now < self._at or now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY
        fresh = [item for item in find_listeners(self._init_pid, self._number) if item not in self._told]
        told = sum(_send(pid, started, self._number) for pid, started in fresh)
        self._told.update(fresh)
        left = max(0.0, self._ends - now)
        name = self._number.name
        if not self._has_spoken:
            self._has_spoken = True
            words = f"{name} sent to {_count(told)}" if told else f"no process handles {name}"
            self._say(f"the time limit is reached in {left:.0f} s: {words}")
        elif told:
            self._say(f"the time limit is reached in {left:.0f} s: {name} sent to {_count(told)} more")


def _count(processes: int) -> str:
    return f"{processes} process" if processes == 1 else f"{processes} processes"


def find_listeners(init_pid: int, number: int) -> list[tuple[int, bytes]]:
    """The processes of a sandbox that handle a signal, each with its start time: a number can be given out again.

    A process that was only forked, as data loaders fork, has its handlers from its parent, which is told instead.
    """
    found = {pid: _read_process(pid, number) for pid in find_descendants(init_pid)}
    known = {pid: process for pid, process in found.items() if process is not None}
    listeners = []
    for process in known.values():
        program = process.command.partition(b"\0")[0].rpartition(b"/")[2]
        if not process.listens or _PLATFORM in process.command or program in HASTY_LAUNCHERS:
            continue
        parent = known.get(process.parent)
        if parent is not None and parent.listens and parent.command == process.command:
            continue
        listeners.append((process.pid, process.started))
    return listeners


def _read_process(pid: int, number: int) -> _Process | None:
    folder = Path(f"/proc/{pid}")
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        caught = (folder / "status").read_bytes().partition(b"\nSigCgt:")[2].split(maxsplit=1)[0]
        command = (folder / "cmdline").read_bytes()
    except (OSError, IndexError):
        return None
    listens = bool(int(caught, 16) >> (number - 1) & 1)
    return _Process(pid, int(fields[1]), fields[19], command, listens)


def _send(pid: int, started: bytes, number: int) -> bool:
    try:
        # A descriptor first: what has the number now is what gets the signal.
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[19] != started:
            return False
        signal.pidfd_send_signal(process, number)
    except OSError:
        return False
    finally:
        os.close(process)
    return True
