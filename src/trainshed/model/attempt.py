"""What a runner reports about its node of an attempt, and how the attempt as a whole is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Cause", "Ending", "NodeReport", "Outcome", "RankExit", "Stage", "StageEntry", "judge_attempt"]

Stage = Literal["starting", "staging", "installing", "training", "uploading", "ended"]
Outcome = Literal["completed", "failed", "stopped"]
# Whose fault a failure is. `limit`: a limit that the user set (time); `stop`: a stop that was asked for.
Cause = Literal["none", "user", "limit", "stop", "platform", "node"]


@dataclass(frozen=True)
class StageEntry:
    """When a stage of the runner began, and what it said."""

    time: float
    stage: Stage
    message: str = ""
    level: str = "info"


@dataclass(frozen=True)
class RankExit:
    """How one rank's process ended. A signal is a positive number; `exit_code` is then 128 + signal."""

    rank: int
    exit_code: int
    signal: int = 0
    time: float = 0.0
    # The platform ended this process itself: another rank failed, a stop, a limit.
    ended_by_platform: bool = False


@dataclass(frozen=True)
class Ending:
    """Why a node's run is over."""

    outcome: Outcome
    cause: Cause = "none"
    # A stable word for machines: exit, signal, out_of_memory, time_limit, stopped, environment, input,
    # code, output, log, disk_full, sandbox, runner_lost, store.
    code: str = ""
    message: str = ""
    hint: str = ""
    rank: int = -1
    exit_code: int = 0
    signal: int = 0
    # The line of the rank's log that tells the most.
    line: str = ""
    # What that line means, as a stable word for machines (missing_module, port_in_use …), or `unknown`.
    reason: str = ""
    # The line of the user's code, as `/job/code/train.py:12`.
    place: str = ""
    # The log to read, when it is not the rank's own: a file that a launcher wrote.
    stream: str = ""
    # Which node of the job, and when the rank ended.
    node: int = -1
    time: float = 0.0
    # It follows from the failure of another rank: that one is named instead, if it is known.
    follows: bool = False


@dataclass(frozen=True)
class NodeReport:
    """The content of a runner's status file. A report without `ending` is of a runner at work."""

    job_id: str
    attempt: int
    node_index: int
    pid: int
    stage: Stage
    # True from just before the first user process starts: from then on an attempt counts as run.
    launched: bool = False
    timeline: tuple[StageEntry, ...] = ()
    ranks: tuple[RankExit, ...] = ()
    ending: Ending | None = None
    started_at: float = 0.0
    ended_at: float = 0.0
    # What protected the host: "bubblewrap" or "none"; and which limits were in force.
    sandbox: str = ""
    limits: tuple[str, ...] = ()
    # Bytes of each rank's log that were written: {"0": 1234}; also "platform".
    log_sizes: dict[str, int] = field(default_factory=dict)
    # Since when nothing but `sleep` is left of the node's command; 0 while it works.
    held_since: float = 0.0
    # Since when no rank has written or worked, once that is longer than the job allows; 0 while they do.
    silent_since: float = 0.0
    # Since when neither a device nor the processor was used, once that is worth telling; 0 while one is.
    idle_since: float = 0.0
    # What could not be brought home and still lies in the run folder, in words; empty when all is safe.
    left_behind: tuple[str, ...] = ()


def judge_attempt(reports: list[NodeReport]) -> Ending:
    """The ending of the whole attempt: of the rank that failed first over all nodes.

    A failure that only follows from another one counts when there is no other. Nodes that were asked to stop
    because of the failure are no failures.
    """
    ends = [(report, report.ending) for report in reports if report.ending is not None]
    failed = [
        (_order_of_failure(report, ending), ending) for report, ending in ends if ending.outcome == "failed"
    ]
    if failed:
        return min(failed, key=lambda item: item[0])[1]
    stopped = [ending for _, ending in ends if ending.outcome == "stopped"]
    return stopped[0] if stopped else Ending("completed")


def _order_of_failure(report: NodeReport, ending: Ending) -> tuple[bool, float, int]:
    # The runner's own end comes after the upload of outputs: only the rank's end tells who was first.
    return ending.follows, ending.time or report.ended_at, report.node_index
