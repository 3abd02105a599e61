"""The endings of a node's run that its runner sees itself, and the words for them."""

from __future__ import annotations

import errno

from trainshed.model.attempt import Cause, Ending
from trainshed.model.errors import HostUnfit, InvalidInput, NotFound, TrainshedError
from trainshed.model.launch_plan import NodeLaunch

__all__ = [
    "ending_for_others",
    "ending_of",
    "ending_of_os",
    "farewell",
    "time_limit_ending",
    "with_output_fault",
]


def ending_of(fault: TrainshedError) -> Ending:
    """A fault before training: the user's if what they named cannot be used, else the platform's."""
    cause: Cause = "platform"
    if isinstance(fault, InvalidInput | NotFound):
        cause = "user"
    elif isinstance(fault, HostUnfit):
        cause = "node"
    return Ending("failed", cause, fault.code, fault.message, fault.hint)


def ending_of_os(fault: OSError) -> Ending:
    """The ending after a fault of the machine: its full disk, if that is it."""
    if fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return Ending(
            "failed",
            "node",
            "disk_full",
            "The node's disk is full.",
            "Free some room (`trainshed status` shows it), then rerun the job.",
        )
    return Ending("failed", "platform", "runner", f"The runner could not go on: {fault}.", "Rerun the job.")


def time_limit_ending(launch: NodeLaunch) -> Ending:
    """The job has reached its own time limit; what to do next depends on where its checkpoints are."""
    kept = launch.checkpoints
    if kept is None:
        hint = (
            "Raise time_limit, or let the script write checkpoints and go on from them (docs/resumable.md)."
        )
    elif kept.bucket:
        place = f"obs://{kept.bucket}/{kept.prefix}"
        hint = f"Its checkpoints are in {place}: `trainshed rerun` goes on from them. Or raise time_limit."
    else:
        hint = (
            "Its checkpoints are kept with the job. `on_time_limit: restart` goes on from them by itself, "
            "`checkpoints: obs://…` lets other jobs do so. Or raise time_limit."
        )
    message = f"The job reached its time limit of {launch.limits.seconds} s."
    return Ending("failed", "limit", "time_limit", message, hint)


def ending_for_others(outcome: str, reason: str) -> Ending:
    """The job has to make room: it did nothing, or another one goes before it."""
    if outcome == "idle":
        hint = "Look at its log for what it waited for. Raise idle_after if such a pause is right."
        return Ending("failed", "limit", "idle", reason, hint, reason="idle")
    hint = "It goes back to the queue by itself if it is `preemptible` or has `restarts` left."
    return Ending("failed", "node", "preempted", reason, hint)


def with_output_fault(ending: Ending, fault: TrainshedError, way: str) -> Ending:
    """A job whose results could not be stored has not completed, whatever its exit code says. `way` leads to them."""
    if ending.outcome != "completed":
        return ending
    return Ending(
        "failed",
        "platform",
        "output",
        f"The training ended well, but its outputs could not be uploaded: {fault.message}",
        f"{fault.hint} {way}".strip(),
    )


def farewell(ending: Ending) -> str:
    """The last line of the platform in the job's log."""
    if ending.outcome == "completed":
        return "the job has completed"
    text = f"this attempt has {'failed' if ending.outcome == 'failed' else 'been stopped'}: {ending.message}"
    return f"{text} {ending.hint}".rstrip()
