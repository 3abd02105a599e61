"""What is to be thought of an attempt's nodes, by what they say themselves and what Slurm says. Pure.

Runners speak to the platform without Slurm, and Slurm watches them without the platform. Where the two differ, who can
still be heard counts: a controller forgets jobs that run, and a node daemon dies beside processes that live on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainshed.engines.engine import NodeObservation
from trainshed.engines.slurm.answers import JobEnd, QueuedJob
from trainshed.engines.slurm.reasons import explain_end, explain_wait
from trainshed.model.attempt import NodeReport
from trainshed.model.errors import Unavailable

__all__ = [
    "NodeSight",
    "has_begun",
    "is_doubtful",
    "is_plain_end",
    "observe",
    "observe_without_slurm",
    "to_be_ended",
]

# A courier comes at least every two seconds; who has not come for so long is gone, or cut off.
HEARD_SECONDS = 6.0
# For so long Slurm may say that it knows nothing of a job that has begun before that is believed.
MISSING_SECONDS = 3.0
# For so long a controller may be silent before the truth about runners that are silent too counts as not known.
_PATIENCE_SECONDS = 300.0
# How long after a rank's end by a signal Slurm is asked whether it was the one who sent it.
_VERDICT_SECONDS = 30.0
# What a runner that Slurm has given up may still take to bring things home, beside the job's grace.
_HOMECOMING_SECONDS = 1800.0
# Ends that come from Slurm: what the runner saw of them are signals only.
_FROM_OUTSIDE = ("PREEMPTED", "NODE_FAIL", "TIMEOUT", "CANCELLED", "DEADLINE", "OUT_OF_MEMORY", "BOOT_FAIL")
_SIGNALS = (9, 15)


@dataclass(frozen=True)
class NodeSight:
    """What the platform itself knows of one node."""

    report: NodeReport | None = None
    # A process has taken the node; when it was last heard (0: never).
    is_claimed: bool = False
    heard_at: float = 0.0
    # When a stop was asked for (0: never), and whether only because Slurm had given the node up.
    asked_at: float = 0.0
    is_given_up: bool = False
    # When the report was written.
    told_at: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether its final report is here."""
        return self.report is not None and self.report.ending is not None


def has_begun(sights: Sequence[NodeSight]) -> bool:
    """Whether a node of the attempt was ever started. It is never started again."""
    return any(sight.report is not None or sight.is_claimed for sight in sights)


def is_doubtful(sights: Sequence[NodeSight], job: QueuedJob | None) -> bool:
    """Whether Slurm does not know of a start that has been: it may have lost it, or not have answered since."""
    return has_begun(sights) and (job is None or job.is_waiting)


def observe(
    sights: Sequence[NodeSight],
    job: QueuedJob | None,
    *,
    now: float,
    missing_for: float,
    grace: float,
    recall: Callable[[NodeReport], str] = lambda report: "",
) -> list[NodeObservation]:
    """What each node does, when Slurm's controller has answered: `job` is what it knows of the attempt.

    `recall` asks the controller, or accounting where it has forgotten the job, how it ended.
    """
    if job is not None and job.is_waiting and not has_begun(sights):
        words = explain_wait(job)
        return [
            NodeObservation(index, "queued", None, words.reason, words.hint) for index in range(len(sights))
        ]
    if is_doubtful(sights, job) and missing_for < MISSING_SECONDS:
        # A controller that has just come up may still be reading what it knows; an answer may be older than the start.
        return [
            _judge(index, sight, job, recall, is_over=job is None, now=now)
            if sight.has_ended
            else _believe(index, sight)
            for index, sight in enumerate(sights)
        ]
    # One that waits again although it had begun is not given a second life: its attempt is over.
    is_over = job is None or job.is_over or job.is_waiting
    seen = []
    for index, sight in enumerate(sights):
        if sight.has_ended:
            seen.append(_judge(index, sight, job, recall, is_over=is_over, now=now))
        elif not is_over or _brings_home(sight, now, grace):
            seen.append(NodeObservation(index, "alive", sight.report))
        else:
            seen.append(NodeObservation(index, "lost", sight.report))
    return seen


def to_be_ended(
    sights: Sequence[NodeSight], job: QueuedJob | None, *, now: float, missing_for: float
) -> list[int]:
    """Nodes that are still heard although Slurm has taken their machines away: they are to stop and come home."""
    doubtful = is_doubtful(sights, job)
    if (doubtful and missing_for < MISSING_SECONDS) or not (doubtful or (job is not None and job.is_over)):
        return []
    return [
        index
        for index, sight in enumerate(sights)
        if not sight.has_ended and not sight.asked_at and now - sight.heard_at < HEARD_SECONDS
    ]


def observe_without_slurm(
    sights: Sequence[NodeSight], fault: Unavailable | None, *, now: float, silent_for: float
) -> list[NodeObservation]:
    """Runners do not need Slurm's controller: while they are heard, and for a while beyond, they are believed.

    Without a fault its answer is only on its way: there is nothing to tell.
    """
    if not has_begun(sights):
        reason, hint = (fault.message, fault.hint) if fault else ("", "")
        return [NodeObservation(index, "queued", None, reason, hint) for index in range(len(sights))]
    is_long = silent_for > _PATIENCE_SECONDS
    return [
        NodeObservation(index, "unknown", sight.report)
        if is_long and not sight.has_ended and now - sight.heard_at > _PATIENCE_SECONDS
        else _believe(index, sight)
        for index, sight in enumerate(sights)
    ]


def is_plain_end(report: NodeReport | None) -> bool:
    """Whether a report is final and does not leave open who sent a signal."""
    ending = report.ending if report is not None else None
    if ending is None:
        return False
    # Slurm signals every process of a node at once: what the runner sees is a sandbox or a rank that is gone.
    by_signal = ending.signal in _SIGNALS or ending.cause in ("platform", "node")
    return ending.outcome == "completed" or (ending.outcome == "failed" and not by_signal)


def _believe(index: int, sight: NodeSight) -> NodeObservation:
    return NodeObservation(index, "ended" if sight.has_ended else "alive", sight.report)


def _brings_home(sight: NodeSight, now: float, grace: float) -> bool:
    """Whether a node that Slurm has given up is still there and may be waited for."""
    if now - sight.heard_at >= HEARD_SECONDS:
        return False
    return not sight.asked_at or now - sight.asked_at < grace + _HOMECOMING_SECONDS


def _judge(
    index: int,
    sight: NodeSight,
    job: QueuedJob | None,
    recall: Callable[[NodeReport], str],
    *,
    is_over: bool,
    now: float,
) -> NodeObservation:
    """A final report, with the reason that only Slurm knows where it speaks of a signal alone."""
    report = sight.report
    assert report is not None
    was_asked = 0 < sight.asked_at <= sight.told_at and not sight.is_given_up
    if is_plain_end(report) or was_asked:
        return NodeObservation(index, "ended", report)
    if not is_over and now - report.ended_at < _VERDICT_SECONDS:
        return NodeObservation(index, "alive", replace(report, ending=None))
    # The queue shows how its script ended; whether somebody made it end is asked for.
    state = job.state if job is not None else ""
    if state not in _FROM_OUTSIDE or state == "TIMEOUT":
        # A job that has used up its GraceTime is a TIMEOUT in the queue, and was preempted all the same.
        state = recall(report) or state
    if state in _FROM_OUTSIDE:
        ending = replace(explain_end(JobEnd(state), index), time=report.ended_at)
        return NodeObservation(index, "ended", replace(report, ending=ending))
    if job is None and sight.is_given_up:
        ending = replace(explain_end(None, index), time=report.ended_at)
        return NodeObservation(index, "ended", replace(report, ending=ending))
    return NodeObservation(index, "ended", report)
