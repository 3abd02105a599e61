"""Why a job waits, what it does, or how it ended, and the next step."""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Engine

from trainshed.control.active_jobs import ActiveJobs
from trainshed.control.queue_view import QueueView, load_queue
from trainshed.db.attempts import AttemptRow, attempt_of, attempts_of
from trainshed.db.engine import read
from trainshed.db.events import latest_event
from trainshed.db.jobs import JobRow, find_job
from trainshed.model.attempt import NodeReport
from trainshed.model.idleness import idle_since
from trainshed.model.launch_plan import from_json, to_json
from trainshed.model.phase import Phase
from trainshed.model.pools import LOCAL_POOL, Pool
from trainshed.model.queue import Wait, plan_queue
from trainshed.services.access import require
from trainshed.services.failure_facts import failure_facts, last_lines, telling_stream
from trainshed.services.identity import Caller
from trainshed.services.job_view import TextMask
from trainshed.services.platform import Platform
from trainshed.services.runner_mirror import silent_nodes

__all__ = ["Explanation", "explain_job", "explain_wait"]

_STRANGER = "a job of another workspace"
_remembered: weakref.WeakKeyDictionary[Engine, ActiveJobs] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Explanation:
    """What can be said about a job: one sentence, facts, the next step, and the same as data."""

    summary: str
    phase: str
    detail: str = ""
    facts: list[str] = field(default_factory=list)
    hint: str = ""
    answer: dict[str, Any] = field(default_factory=dict)
    # The end of the log that tells why a job failed, and which log that is.
    last_lines: list[str] = field(default_factory=list)
    stream: str = ""


def explain_job(platform: Platform, caller: Caller, ref: str) -> Explanation:
    """Why the job waits, what it does now, or how it ended."""
    require(caller, "job.read")
    with read(platform.engine) as connection:
        job = find_job(connection, caller.workspace_id, ref)
        require(caller, "job.read", job)
        wait = explain_wait(connection, job, platform.clock(), platform.settings.all_pools)
        attempts = attempts_of(connection, job.id)
        event = latest_event(connection, job.id)
    mask = TextMask(platform, job.id)
    if job.phase is Phase.PENDING:
        return _waiting(job, wait, platform.clock())
    if job.phase.is_terminal:
        told = _ended(job, mask, attempts)
        if job.phase is not Phase.FAILED:
            return told
        lines = last_lines(platform, caller, job.id, told.answer)
        return replace(told, last_lines=lines, stream=telling_stream(told.answer))
    facts = []
    if attempts:
        places = sorted({str(place.get("node", "")) for place in attempts[-1].placements} - {""})
        where = f" on {', '.join(places)}" if places else f" in {attempts[-1].engine}"
        facts.append(f"Attempt {attempts[-1].attempt}{where}.")
    if job.stop_requested:
        facts.append(f"A stop was asked for: {job.stop_reason}")
    since = idle_since(_reports(attempts[-1])) if attempts else 0.0
    if since:
        facts.append(
            f"It has used neither a device nor the processor for {_duration(platform.clock() - since)}."
        )
    silent = silent_nodes(platform.home, job.id, job.attempt, job.nodes, platform.clock())
    facts += [
        f"Node {index} ({host}) has not been heard for {_duration(seconds)}: its log is late."
        for index, host, seconds in silent
    ]
    if event is not None:
        facts.append(f"Last event: {mask.text(event.message)}")
    summary = f"'{job.name}' is {job.phase}" + (f" ({job.detail})." if job.detail else ".")
    hint = ""
    if job.phase is Phase.ABNORMAL:
        hint = "The machine cannot be reached at the moment; the platform keeps looking."
    elif silent:
        hint = "Its job goes on there. Can that machine reach the platform (public_url, firewalls)?"
    elif since:
        hint = "Look at its log for what it waits for; `trainshed stop` gives the devices to others."
    return Explanation(summary, job.phase.value, job.detail, facts, hint, {"attempt": job.attempt})


def explain_wait(
    connection: Connection, job: JobRow, now: float, pools: tuple[Pool, ...] = (Pool(LOCAL_POOL),)
) -> Wait | None:
    """Why a job waits, by the same policy that will start it; None when it does not wait.

    Names of other workspaces' jobs are not told.
    """
    if job.phase is not Phase.PENDING:
        return None
    attempt = attempt_of(connection, job.id, job.attempt) if job.attempt else None
    if attempt is not None and attempt.state != "ended":
        # Handed to a queue of its engine's own: what that says was noted.
        noted = job.wait or {}
        return Wait(job.id, noted.get("reason", "Slurm has it."), hint=noted.get("hint", ""))
    jobs = _active_jobs(connection.engine).load(connection)
    queue = _anonymous(load_queue(connection, now, jobs, pools), job.workspace_id)
    if job.id in queue.resting:
        seconds = queue.resting[job.id] - now
        return Wait(
            job.id,
            f"It has failed {job.attempt} times by no fault of its own and rests for {_duration(seconds)} more.",
            hint="Its story (`trainshed show`) says what failed each time; `trainshed stop` ends the waiting.",
        )
    if any(other.id == job.id for other in queue.stranded):
        return Wait(
            job.id,
            f"Its pool '{job.spec.get('pool', '')}' is gone from the platform's settings.",
            hint="Ask the administrator, or submit it again with another pool.",
        )
    if any(other.id == job.id for other in queue.to_hand_over):
        pool = queue.pools[job.id].name
        if job.flavor not in {flavor.name for flavor in queue.flavors[pool]}:
            return Wait(
                job.id,
                f"No machine of the pool '{pool}' that Slurm shows now gives {job.flavor}.",
                hint="`trainshed nodes` shows what is there.",
            )
        return Wait(job.id, "It is handed to Slurm as soon as fewer of the platform's jobs wait there.")
    plan = plan_queue(queue.waiting, queue.held, queue.nodes, now, only=job.id)
    for wait in plan.waits:
        if wait.job_id == job.id:
            return wait
    return Wait(job.id, "Its turn has come; it starts at once.")


def _active_jobs(engine: Engine) -> ActiveJobs:
    """What is remembered of the active jobs of a database: people look at waiting jobs again and again."""
    return _remembered.setdefault(engine, ActiveJobs())


def _anonymous(queue: QueueView, workspace_id: str) -> QueueView:
    def is_own(job_id: str) -> bool:
        return queue.jobs[job_id].workspace_id == workspace_id

    return replace(
        queue,
        waiting=tuple(
            request if is_own(request.job_id) else replace(request, name=_STRANGER)
            for request in queue.waiting
        ),
        held=tuple(held if is_own(held.job_id) else replace(held, name=_STRANGER) for held in queue.held),
    )


def _waiting(job: JobRow, wait: Wait | None, now: float) -> Explanation:
    wait = wait or Wait(job.id, "Its turn has come; it starts at once.")
    facts = []
    if wait.position:
        facts.append(f"Position {wait.position} in the queue.")
    if wait.ahead:
        facts.append("Ahead of it: " + ", ".join(wait.ahead) + ".")
    since = job.queued_at or job.created_at
    facts.append(f"Waiting for {_duration(now - since)}.")
    if wait.starts_by is not None:
        facts.append(
            f"Starts at the latest in {_duration(wait.starts_by - now)}, when jobs with a time limit end."
        )
    elif not wait.impossible and wait.position:
        facts.append("No forecast: the jobs that hold what it needs have no time limit.")
    return Explanation(
        f"'{job.name}' waits: {wait.reason}", job.phase.value, job.detail, facts, wait.hint, to_json(wait)
    )


def _ended(job: JobRow, mask: TextMask, attempts: list[AttemptRow]) -> Explanation:
    ending: dict[str, Any] = mask.data(job.ending or {})
    message = ending.get("message", "")
    summary = f"'{job.name}' is {job.phase}" + (f": {message}" if message else ".")
    failed = job.phase is Phase.FAILED
    facts = failure_facts(ending, attempts[-1] if attempts else None) if failed else []
    if len(attempts) > 1:
        facts.append(f"It was started {len(attempts)} times.")
    if job.started_at is not None and job.ended_at is not None:
        facts.append(f"It ran for {_duration(job.ended_at - job.started_at)}.")
    return Explanation(summary, job.phase.value, job.detail, facts, str(ending.get("hint", "")), ending)


def _reports(attempt: AttemptRow) -> list[NodeReport | None]:
    """What the nodes that have not ended say; None for one that has said nothing yet."""
    reports = [from_json(NodeReport, item) if item else None for item in attempt.reports]
    return [report for report in reports if report is None or report.ending is None]


def _duration(seconds: float) -> str:
    seconds = max(0, round(seconds))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return time.strftime("%H h %M min", time.gmtime(seconds)) if seconds < 86400 else f"{seconds // 86400} d"
