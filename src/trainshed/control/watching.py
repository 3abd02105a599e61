"""Running: read what the engine and the runners say, decide the next step, take it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from trainshed.control.admission import submit_attempt
from trainshed.control.context import Control
from trainshed.control.queue_view import QueueView
from trainshed.control.submissions import Submissions
from trainshed.control.wait_notes import WaitNotes
from trainshed.db.attempts import AttemptRow, change_attempt
from trainshed.db.engine import begin
from trainshed.db.jobs import JobRow, change_job
from trainshed.engines.engine import Engine, NodeObservation
from trainshed.model.attempt import Ending
from trainshed.model.idleness import rule_for
from trainshed.model.job_spec import render_duration
from trainshed.model.launch_plan import to_json
from trainshed.model.notification import event_of_phase
from trainshed.model.phase import Detail, Phase
from trainshed.model.progress import AttemptFacts, NodeFacts, Step, decide_step

__all__ = ["watch_job"]


def watch_job(
    control: Control,
    job: JobRow,
    attempt: AttemptRow,
    queue: QueueView,
    submissions: Submissions,
    notes: WaitNotes,
) -> bool:
    """Move a job that an engine has one step on; True when the queue looks different now: it gave devices back that
    this platform deals out, or is to start again.

    A job that waits in its engine's queue as at the last look is left alone.
    """
    engine = control.engines[attempt.engine]
    seen = engine.describe(job.id, attempt.attempt, job.nodes)
    if notes.is_settled(job, seen):
        return False
    begins = job.phase is Phase.PENDING and any(_has_begun(node) for node in seen)
    step = decide_step(
        AttemptFacts(
            Phase.RUNNING if begins else job.phase,
            job.attempt,
            job.restarts,
            job.starts_without_launch,
            job.stop_requested,
            job.stop_reason,
            hold=_hold_of(job),
            now=control.clock(),
            is_preemptible=job.preemptible,
            goes_on_after_limit=job.spec.get("on_time_limit") == "restart",
            idle=rule_for(job.spec, control.settings.idle_notify_minutes, control.settings.idle_stop_minutes),
        ),
        [NodeFacts(node.state, node.report, node.reason) for node in seen],
    )
    if step.kind == "submit":
        submit_attempt(control, job, attempt, queue, submissions)
        return False
    if step.detail is Detail.IN_SLURM:
        notes.settle(job, seen)
        notes.add(job, step.reason, seen[0].hint)
        return False
    if step.kind in ("cancel", "salvage", "release", "hang", "idle"):
        _reach_out(engine, job, attempt, step)
    return _record(control, job, attempt, seen, step, begins) and (
        step.kind == "restart" or not engine.queues
    )


def _has_begun(node: NodeObservation) -> bool:
    """Whether a node of a job that waited in its engine's queue has been started."""
    return node.state in ("alive", "unknown") or (node.report is not None and node.report.launched)


def _begin(
    control: Control, connection: Connection, job: JobRow, attempt: AttemptRow
) -> tuple[JobRow, AttemptRow] | None:
    """Pending -> Running, for a job that its engine has started; None when another has changed the job."""
    now = control.clock()
    changed = change_job(
        connection,
        job,
        phase=Phase.RUNNING,
        detail=Detail.STARTING.value,
        started_at=job.started_at or now,
        wait=None,
    )
    if changed is None:
        return None
    control.tell(connection, changed, f"Attempt {attempt.attempt} starts.")
    return changed, change_attempt(connection, attempt, state="running", started_at=now)


def _hold_of(job: JobRow) -> int:
    """How long the job is held open once it only sleeps."""
    return int(job.spec.get("hold", 1800)) if job.spec.get("dialect") == "apulis" else 0


def _reach_out(engine: Engine, job: JobRow, attempt: AttemptRow, step: Step) -> None:
    if step.kind == "salvage":
        engine.salvage(job.id, attempt.attempt)
    if step.kind == "release":
        engine.cancel(job.id, attempt.attempt, reason=step.reason, outcome="completed")
    elif step.kind == "hang":
        engine.cancel(job.id, attempt.attempt, reason=step.reason, outcome="hung")
    elif step.kind == "idle":
        engine.cancel(job.id, attempt.attempt, reason=step.reason, outcome="idle")
    elif step.kind == "cancel" or job.nodes > 1:
        engine.cancel(job.id, attempt.attempt, reason=step.reason)


def _record(
    control: Control, job: JobRow, attempt: AttemptRow, seen: list[NodeObservation], step: Step, begins: bool
) -> bool:
    """Write what is new since the last look, in one transaction guarded by the job's version."""
    reports = [to_json(node.report) if node.report else {} for node in seen]
    if not begins and not _changes(control, job, step) and reports == (attempt.reports or [{} for _ in seen]):
        return False
    freed = step.kind in ("finish", "restart")
    with begin(control.database) as connection:
        if begins:
            begun = _begin(control, connection, job, attempt)
            if begun is None:
                return False
            job, attempt = begun
        changes = _changes(control, job, step)
        changed = change_job(connection, job, **changes) if changes else job
        if changed is None:
            return False
        _tell_story(control, connection, changed, attempt, seen)
        if step.detail is Detail.HELD and job.detail != Detail.HELD.value:
            hold = render_duration(_hold_of(job))
            words = f"The training has ended; the job is held open for {hold}: `trainshed hold` extends it."
            control.tell(connection, changed, words)
            control.notify(connection, changed, "held")
        if step.detail is Detail.IDLE and job.detail != Detail.IDLE.value:
            words = "No node has used a device or the processor for a while: the job is idle."
            control.tell(connection, changed, words, "warning")
            control.notify(connection, changed, "idle")
        ending = to_json(step.ending) if step.ending else None
        if freed:
            change_attempt(
                connection, attempt, reports=reports, state="ended", ended_at=control.clock(), ending=ending
            )
            _tell_end(control, connection, changed, step)
            control.revoke_credentials(connection, job.id)
        else:
            change_attempt(connection, attempt, reports=reports)
    return freed


def _changes(control: Control, job: JobRow, step: Step) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if step.kind == "finish" and step.phase is not None:
        return {
            "phase": step.phase,
            "detail": "",
            "ending": to_json(step.ending) if step.ending else None,
            "ended_at": control.clock(),
        }
    if step.kind == "restart":
        uncounted = 0 if step.counted else 1
        return {
            "phase": Phase.PENDING,
            "detail": step.detail.value,
            "wait": {"until": control.clock() + step.delay} if step.delay else None,
            "starts_without_launch": job.starts_without_launch + uncounted,
        }
    if step.kind == "doubt":
        phase = Phase.ABNORMAL
    elif job.stop_requested:
        phase = Phase.TERMINATING
    elif job.phase is Phase.ABNORMAL:
        phase = Phase.RUNNING
    else:
        phase = job.phase
    if phase is not job.phase:
        changes["phase"] = phase
    if step.detail.value != job.detail:
        changes["detail"] = step.detail.value
    return changes


def _tell_story(
    control: Control, connection: Connection, job: JobRow, attempt: AttemptRow, seen: list[NodeObservation]
) -> None:
    """Turn the stages that runners have entered since the last look into events."""
    for index, node in enumerate(seen):
        if node.report is None:
            continue
        known = len(attempt.reports[index].get("timeline", ())) if index < len(attempt.reports) else 0
        for entry in node.report.timeline[known:]:
            words = f"Node {index}: {entry.stage}" + (f": {entry.message}" if entry.message else ".")
            control.tell(connection, job, words, entry.level, time=entry.time, source="runner")
        for words in node.report.left_behind if node.state == "ended" else ():
            control.tell(connection, job, f"Node {index}: kept in the run folder: {words}", "warning")


def _tell_end(control: Control, connection: Connection, job: JobRow, step: Step) -> None:
    ending = step.ending or Ending("completed")
    # Whose job starts again by itself needs no advice.
    hint = ending.hint if step.kind != "restart" else ""
    said = f" {ending.message} {hint}".rstrip()
    if step.kind == "restart":
        control.tell(
            connection,
            job,
            f"Attempt {job.attempt} is over and the job goes back to the queue"
            + (f" in {step.delay:.0f} s.{said}" if step.delay else f".{said}"),
            "warning",
        )
    else:
        control.tell(
            connection, job, f"{step.phase}.{said}", "error" if step.phase is Phase.FAILED else "info"
        )
    # A message about an attempt says why it ended, also when the job itself goes on.
    told = replace(job, ending=job.ending or to_json(ending))
    if ending.code == "preempted":
        control.notify(connection, told, "preempted")
    control.notify(connection, told, "restarted" if step.kind == "restart" else event_of_phase(job.phase))
