"""Preemption on this machine: jobs that may be preempted leave for waiting ones of a higher priority."""

from __future__ import annotations

from collections.abc import Sequence

from trainshed.control.context import Control
from trainshed.control.queue_view import QueueView
from trainshed.db.engine import begin
from trainshed.db.jobs import JobRow, change_job
from trainshed.model.queue import Held, Request, choose_victims

__all__ = ["make_room"]

_REASON = "The job gave its devices to one of a higher priority."


def make_room(control: Control, queue: QueueView, waiting: Sequence[Request], held: Sequence[Held]) -> None:
    """Ask jobs to leave for those that wait. What was decided is written first, and asked for until it is done."""
    for job in queue.jobs.values():
        if (job.wait or {}).get("yields_to") and not job.stop_requested:
            _ask(control, queue, job)
    for victim, request in choose_victims(waiting, held, queue.nodes):
        job = queue.jobs[victim.job_id]
        wait = {
            "yields_to": request.job_id,
            "reason": "It leaves for a job of a higher priority, and goes back to the queue.",
        }
        with begin(control.database) as connection:
            changed = change_job(connection, job, wait=wait)
            if changed is None:
                continue
            words = f"It leaves for a job of priority {request.priority}; its own is {job.priority}."
            control.tell(connection, changed, words, "warning")
        _ask(control, queue, changed)


def _ask(control: Control, queue: QueueView, job: JobRow) -> None:
    attempt = queue.attempts.get(job.id)
    if attempt is not None and job.phase.holds_devices:
        engine = control.engines[attempt.engine]
        engine.cancel(job.id, attempt.attempt, reason=_REASON, outcome="preempted")
