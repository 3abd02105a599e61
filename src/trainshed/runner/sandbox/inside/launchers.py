"""Launchers of MPI that were signalled together with what they launched."""

from __future__ import annotations

import os
import time

from trainshed.runner.sandbox.inside.processes import (
    HASTY_LAUNCHERS,
    THEIR_HANDS,
    descendants_of,
    list_processes,
    send,
)

__all__ = ["Launchers"]

SIGCONT, SIGSTOP = 18, 19
# What a launcher needs to leave by itself.
LAST_SECONDS = 1.5


class Launchers:
    """Holds launchers back until their processes have left, here and on other nodes."""

    def __init__(self) -> None:
        self.held: set[int] = set()

    def hold(self) -> None:
        """Halt those that were signalled with all the others: they kill their processes within seconds."""
        processes = list_processes()
        for pid in descendants_of(os.getpid(), processes):
            if processes[pid].name in HASTY_LAUNCHERS:
                self.held.add(pid)
                send(pid, SIGSTOP)

    def release(self, deadline: float) -> None:
        """Let those go on whose processes have left; here at once, on other nodes as soon as their hands are empty.

        A launcher that goes on while others still save would have them killed. When the grace is nearly over, it has to.
        """
        if not self.held:
            return
        processes = list_processes()
        is_late = time.monotonic() >= deadline - LAST_SECONDS
        idle = (*HASTY_LAUNCHERS, *(THEIR_HANDS if is_late else ()))
        for pid in list(self.held):
            if all(processes[child].name in idle for child in descendants_of(pid, processes)):
                self.held.discard(pid)
                send(pid, SIGCONT)
