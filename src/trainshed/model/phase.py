"""The phases of a job's life, and which one may follow which."""

from __future__ import annotations

from enum import StrEnum

from trainshed.model.errors import Conflict

__all__ = ["TRANSITIONS", "Detail", "Phase", "check_transition"]


class Phase(StrEnum):
    """Where a job is in its life. The words are those of ModelArts v2.

    Creating ──► Pending ──► Running ──► Completed
       │  │        │  ▲        │ │ │
       │  │        │  └────────┘ │ └───► Failed
       │  │        │  (restart)  ▼
       │  └────────┴──────► Terminating ──► Terminated
       └──► Failed                Running ◄──► Abnormal (the truth is not known at the moment)

    * Creating: accepted; the code is being snapshotted and the environment resolved.
    * Pending: waits for its turn and for free devices (also between two attempts).
    * Running: an attempt was handed to an engine.
    * Terminating: a stop was asked for and is under way. A job that ended by itself before the stop
      reached it still ends as what it was: Completed or Failed.
    * Abnormal: the engine cannot say whether the attempt lives (a node is out of reach).
    * Completed, Failed, Terminated: the end; nothing follows.
    """

    CREATING = "Creating"
    PENDING = "Pending"
    RUNNING = "Running"
    TERMINATING = "Terminating"
    ABNORMAL = "Abnormal"
    COMPLETED = "Completed"
    FAILED = "Failed"
    TERMINATED = "Terminated"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended for good."""
        return not TRANSITIONS[self]

    @property
    def holds_devices(self) -> bool:
        """Whether devices may be in use on behalf of a job in this phase."""
        return self in (Phase.RUNNING, Phase.TERMINATING, Phase.ABNORMAL)


class Detail(StrEnum):
    """What exactly a job does within its phase."""

    NONE = ""
    SNAPSHOTTING = "snapshotting"
    RESOLVING = "resolving"
    QUEUED = "queued"
    IN_SLURM = "queued in slurm"
    RESTARTING = "restarting"
    PREEMPTED = "preempted"
    STARTING = "starting"
    STAGING = "staging"
    INSTALLING = "installing"
    TRAINING = "training"
    IDLE = "training, idle"
    HELD = "training ended, held open"
    UPLOADING = "uploading"
    STOPPING = "stopping"
    LOST = "lost"


_ENDS = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED})

TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.CREATING: frozenset({Phase.PENDING, Phase.FAILED, Phase.TERMINATING, Phase.TERMINATED}),
    Phase.PENDING: frozenset({Phase.RUNNING, Phase.FAILED, Phase.TERMINATING, Phase.TERMINATED}),
    # Terminated straight from Running: the stop took effect between two looks of the control loop.
    Phase.RUNNING: _ENDS | {Phase.PENDING, Phase.TERMINATING, Phase.ABNORMAL},
    Phase.TERMINATING: _ENDS | {Phase.ABNORMAL},
    Phase.ABNORMAL: _ENDS | {Phase.RUNNING, Phase.PENDING, Phase.TERMINATING},
    Phase.COMPLETED: frozenset(),
    Phase.FAILED: frozenset(),
    Phase.TERMINATED: frozenset(),
}


def check_transition(now: Phase, then: Phase) -> None:
    """Refuse a step that the table of transitions does not hold."""
    if then not in TRANSITIONS[now]:
        raise Conflict(f"A job that is {now} cannot become {then}.", code="bad_transition")
