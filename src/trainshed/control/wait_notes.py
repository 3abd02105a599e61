"""Why jobs wait in an engine's own queue: gathered during a pass, written together."""

from __future__ import annotations

from trainshed.control.context import Control
from trainshed.db.engine import begin
from trainshed.db.jobs import JobRow, change_job
from trainshed.model.phase import Detail

__all__ = ["WaitNotes"]

# A reader or another writer is never kept waiting for longer than so many rows take.
_AT_ONCE = 100


class WaitNotes:
    """New reasons of jobs that wait. When a queue moves, the reasons of all that wait in it change at once."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._notes: list[tuple[JobRow, dict[str, str]]] = []

    def add(self, job: JobRow, reason: str, hint: str = "") -> None:
        """Remember why a job waits; an empty reason says nothing new."""
        wait = {"reason": reason, "hint": hint}
        if reason and (job.wait != wait or job.detail != Detail.IN_SLURM.value):
            self._notes.append((job, wait))

    def write(self) -> None:
        """Write all of them; the story of each job tells every new reason once."""
        for start in range(0, len(self._notes), _AT_ONCE):
            with begin(self._control.database) as connection:
                for job, wait in self._notes[start : start + _AT_ONCE]:
                    changed = change_job(connection, job, wait=wait, detail=Detail.IN_SLURM.value)
                    if changed is not None and (job.wait or {}).get("reason") != wait["reason"]:
                        self._control.tell(connection, changed, wait["reason"])
        self._notes.clear()
