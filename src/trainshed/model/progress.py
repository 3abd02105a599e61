"""What the control loop does next with an attempt that an engine has: one pure decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainshed.model.attempt import Ending, NodeReport, judge_attempt
from trainshed.model.idleness import IdleRule, idle_since
from trainshed.model.phase import Detail, Phase

__all__ = ["AttemptFacts", "NodeFacts", "Step", "decide_step", "restart_delay"]

# How often an attempt may die before the user's first process started without this counting as a restart.
FREE_STARTS = 3
# A job that may be preempted comes back as often as that happens, but not without end.
MOST_ATTEMPTS = 100
_FIRST_DELAY, _LONGEST_DELAY = 10.0, 600.0
# Only a runner that vanished is worth that: a full disk or a missing program is the same a moment later.
_VANISHED = ("runner_lost", "ended_from_outside", "preempted", "node_failed")
_NEVER_IDLE = IdleRule()
_RELEASED = "The training has ended, and so has the time for which the job was held open."

_STAGE_DETAILS = {
    "starting": Detail.STARTING,
    "staging": Detail.STAGING,
    "installing": Detail.INSTALLING,
    "training": Detail.TRAINING,
    "uploading": Detail.UPLOADING,
}


@dataclass(frozen=True)
class NodeFacts:
    """What is known of one node: the engine's word on it and the runner's last report."""

    state: Literal["absent", "queued", "alive", "ended", "lost", "unknown"]
    report: NodeReport | None = None
    reason: str = ""


@dataclass(frozen=True)
class AttemptFacts:
    """What is known of the job whose attempt is judged."""

    phase: Phase
    attempt: int
    restarts: int
    starts_without_launch: int
    stop_requested: bool
    stop_reason: str = ""
    # How long the job is held open once only `sleep` is left on every node, and the time now.
    hold: int = 0
    now: float = 0.0
    # A preemption does not use up its restarts; the time limit is followed by another attempt.
    is_preemptible: bool = False
    goes_on_after_limit: bool = False
    idle: IdleRule = _NEVER_IDLE


@dataclass(frozen=True)
class Step:
    """The next step.

    * keep: nothing to do but note the detail.
    * submit: hand the attempt to the engine again; a crash came between the decision and the deed.
    * cancel: ask all nodes to stop, with `reason`.
    * salvage: bring home what lost nodes left; the others are asked to stop.
    * release: the training has ended and the job was held open long enough: end what sleeps.
    * hang: no node has done anything for longer than the job allows: end it as failed.
    * idle: no node has used a device or the processor for longer than the job may: end it as failed.
    * doubt: the engine cannot tell; the job is Abnormal until it can.
    * finish: the job is over, in `phase`, by `ending`.
    * restart: back to the queue for another attempt; `counted` if it uses up one of the job's restarts.
    """

    kind: Literal[
        "keep", "submit", "cancel", "salvage", "release", "hang", "idle", "doubt", "finish", "restart"
    ]
    detail: Detail = Detail.NONE
    reason: str = ""
    phase: Phase | None = None
    ending: Ending | None = None
    counted: bool = True
    # Of a restart: so many seconds the job stays out of the queue first.
    delay: float = 0.0


def decide_step(job: AttemptFacts, nodes: Sequence[NodeFacts]) -> Step:
    """Judge an attempt by what its nodes say. The same facts always give the same step."""
    states = {node.state for node in nodes}
    reports = [node.report for node in nodes if node.report is not None]
    if states == {"ended"}:
        return _decide_end(job, reports)
    if "absent" in states:
        if job.stop_requested and states <= {"absent", "ended"}:
            return Step("finish", phase=Phase.TERMINATED, ending=_stopped(job))
        return Step("cancel", reason=job.stop_reason) if job.stop_requested else Step("submit")
    if states == {"queued"}:
        if job.stop_requested:
            return Step("cancel", Detail.STOPPING, job.stop_reason or "The job was stopped.")
        detail = Detail.IN_SLURM if job.phase is Phase.PENDING else Detail.STARTING
        return Step("keep", detail, nodes[0].reason)
    if "lost" in states:
        return Step("salvage", Detail.LOST, "Another node of this job was lost.")
    if "alive" in states and job.stop_requested:
        return Step("cancel", Detail.STOPPING, job.stop_reason or "The job was stopped.")
    failed = [
        report for report in reports if report.ending is not None and report.ending.outcome != "completed"
    ]
    if failed and "alive" in states:
        return Step("cancel", _detail(reports), "Another node of this job has ended.")
    if "unknown" in states:
        return Step("doubt", Detail.LOST)
    held = [node.report.held_since for node in nodes if node.state == "alive" and node.report is not None]
    if job.hold and held and all(held) and len(held) == sum(node.state == "alive" for node in nodes):
        is_over = job.now >= max(held) + job.hold
        return Step("release" if is_over else "keep", Detail.HELD, _RELEASED if is_over else "")
    working = [node.report for node in nodes if node.state == "alive"]
    if working and all(report is not None and report.silent_since for report in working):
        return Step("hang", _detail(reports), "No rank has written to its log or used the processor.")
    since = idle_since(working)
    if since and job.idle.stop and job.now >= since + job.idle.stop:
        words = f"The job used neither a device nor the processor for {_minutes(job.idle.stop)}."
        return Step("idle", Detail.IDLE, words)
    if since and job.idle.notify and job.now >= since + job.idle.notify:
        return Step("keep", Detail.IDLE)
    return Step("keep", _detail(reports))


def _decide_end(job: AttemptFacts, reports: list[NodeReport]) -> Step:
    ending = judge_attempt(reports)
    if ending.outcome == "completed":
        return Step("finish", phase=Phase.COMPLETED, ending=ending)
    if ending.outcome == "stopped" and job.stop_requested:
        return Step(
            "finish",
            phase=Phase.TERMINATED,
            ending=replace(ending, message=job.stop_reason or ending.message),
        )
    if ending.outcome == "stopped":
        # Nobody asked through the platform: the machine itself went down or the runner was ended by hand.
        ending = replace(
            ending,
            outcome="failed",
            cause="node",
            code="ended_from_outside",
            message="The node's processes were ended from outside the platform.",
            hint="Rerun the job, or give it `restarts` so that this happens by itself.",
        )
    may_restart = job.attempt - 1 - job.starts_without_launch < job.restarts
    if ending.code == "time_limit" and job.goes_on_after_limit and may_restart and not job.stop_requested:
        return Step("restart", Detail.RESTARTING, ending=ending)
    if ending.cause in ("platform", "node"):
        if job.stop_requested:
            return Step("finish", phase=Phase.TERMINATED, ending=_stopped(job))
        launched = any(report.launched for report in reports)
        if not launched and ending.code in _VANISHED and job.starts_without_launch < FREE_STARTS:
            return Step("restart", Detail.RESTARTING, ending=ending, counted=False)
        if ending.code == "preempted":
            # Nothing is broken: it waits for its turn and not for time to pass.
            is_free = job.is_preemptible and job.attempt < MOST_ATTEMPTS
            if is_free or may_restart:
                return Step("restart", Detail.PREEMPTED, ending=ending, counted=not is_free)
        elif may_restart:
            return Step("restart", Detail.RESTARTING, ending=ending, delay=restart_delay(job.attempt))
    return Step("finish", phase=Phase.FAILED, ending=ending)


def restart_delay(attempt: int) -> float:
    """Seconds to wait after an attempt that failed: none after the first, then twice as long each time.

    A single mishap costs no time; a machine or a store that stays broken is not asked again and again.
    """
    return 0.0 if attempt < 2 else min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (attempt - 2))


def _minutes(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def _stopped(job: AttemptFacts) -> Ending:
    return Ending("stopped", "stop", "stopped", job.stop_reason or "The job was stopped.")


def _detail(reports: list[NodeReport]) -> Detail:
    """The detail of the node that is furthest behind."""
    order = list(_STAGE_DETAILS)
    stages = [report.stage for report in reports if report.stage in _STAGE_DETAILS]
    return _STAGE_DETAILS[min(stages, key=order.index)] if stages else Detail.STARTING
