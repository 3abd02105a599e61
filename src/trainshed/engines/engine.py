"""The interface of an engine: what runs the attempts of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainshed.model.attempt import NodeReport
from trainshed.model.flavor import Node
from trainshed.model.launch_plan import NodeLaunch

__all__ = ["AttemptLaunch", "Engine", "NodeObservation"]


@dataclass(frozen=True)
class AttemptLaunch:
    """One attempt of a job, ready to be handed to an engine."""

    job_id: str
    attempt: int
    nodes: tuple[NodeLaunch, ...]
    # Values of the variables that the plan only names; never shown, never logged.
    secrets: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeObservation:
    """What an engine sees of one node of an attempt.

    * absent: the engine knows nothing of it; it was never started.
    * alive: its runner lives (the report is the latest one, or None before the first).
    * ended: its runner wrote a final report and is gone.
    * lost: its runner is gone and left no final report.
    * unknown: the engine cannot tell at this moment.
    """

    node_index: int
    state: Literal["absent", "alive", "ended", "lost", "unknown"]
    report: NodeReport | None = None


class Engine(Protocol):
    """Hands attempts to whatever runs them. Every method may be called again after a crash."""

    name: str

    def capacity(self) -> list[Node]:
        """The machines of this engine, with all they have (free or not)."""
        ...

    def submit(self, launch: AttemptLaunch) -> None:
        """Start the attempt. A second call for the same attempt starts nothing twice."""
        ...

    def describe(self, job_id: str, attempt: int, nodes: int) -> list[NodeObservation]:
        """What is known of each node of the attempt."""
        ...

    def cancel(
        self,
        job_id: str,
        attempt: int,
        *,
        reason: str,
        outcome: Literal["stopped", "completed", "hung"] = "stopped",
    ) -> None:
        """Ask the attempt to stop: SIGTERM, grace, SIGKILL. Returns at once.

        With the outcome `completed`, its work is done and only its processes are left to end. With `hung`, it has
        failed because nothing happened for too long.
        """
        ...

    def salvage(self, job_id: str, attempt: int) -> None:
        """Bring home the logs and outputs of lost nodes and write their final reports. Returns at once."""
        ...

    def discard(self, job_id: str, attempt: int) -> bool:
        """Remove what the attempt left on the machines, after all of it was brought home.

        False when a runner still lives there: nothing was removed, ask again later.
        """
        ...

    def dry_run(self, launch: AttemptLaunch) -> str:
        """What `submit` would do, for people: commands, scripts, files."""
        ...
