"""Why jobs wait in an engine's own queue: gathered during a pass, written together."""

from __future__ import annotations

from collections.abc import Collection

from trainshed.control.context import Control
from trainshed.db.engine import begin
from trainshed.db.jobs import JobRow, change_job
from trainshed.engines.engine import NodeObservation
from trainshed.model.phase import Detail

__all__ = ["WaitNotes"]

# A reader or another writer is never kept waiting for longer than so many rows take.
_AT_ONCE = 100


class WaitNotes:
    """New reasons of jobs that wait. When a queue moves, the reasons of all that wait in it change at once."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._notes: list[tuple[JobRow, dict[str, str]]] = []
        # By the jobs' ids: the row and the sight of which there was nothing to note any more.
        self._settled: dict[str, tuple[JobRow, list[NodeObservation]]] = {}

    def is_settled(self, job: JobRow, seen: list[NodeObservation]) -> bool:
        """Whether this very row and this very sight of a waiting job have been looked at before."""
        known = self._settled.get(job.id)
        return known is not None and known[0] is job and known[1] is seen

    def settle(self, job: JobRow, seen: list[NodeObservation]) -> None:
        """Remember that there is nothing to do for a waiting job until its row or what is seen of it is another."""
        self._settled[job.id] = job, seen

    def forget_all_but(self, job_ids: Collection[str]) -> None:
        """Forget jobs that have ended."""
        if len(self._settled) > len(job_ids):
            self._settled = {name: known for name, known in self._settled.items() if name in job_ids}

    def add(self, job: JobRow, reason: str, hint: str = "") -> None:
        """Remember why a job waits; an empty reason says nothing new."""
        wait = {"reason": reason, "hint": hint}
        if reason and (job.wait != wait or job.detail != Detail.IN_SLURM.value):
            self._notes.append((job, wait))
            self._settled.pop(job.id, None)

    def write(self) -> None:
        """Write all of them; the story of each job tells every new reason once."""
        # What cannot be written now is noted again at the next look.
        notes, self._notes = self._notes, []
        for start in range(0, len(notes), _AT_ONCE):
            with begin(self._control.database) as connection:
                for job, wait in notes[start : start + _AT_ONCE]:
                    changed = change_job(connection, job, wait=wait, detail=Detail.IN_SLURM.value)
                    if changed is not None and (job.wait or {}).get("reason") != wait["reason"]:
                        self._control.tell(connection, changed, wait["reason"])
