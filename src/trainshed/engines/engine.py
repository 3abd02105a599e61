"""The interface of an engine: what runs the attempts of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainshed.model.attempt import NodeReport
from trainshed.model.flavor import Flavor, Node
from trainshed.model.launch_plan import NodeLaunch

__all__ = [
    "EXIT_NO_PLATFORM",
    "EXIT_NO_PYTHON",
    "EXIT_REFUSED",
    "EXIT_UNDELIVERED",
    "EXIT_UNFIT",
    "Allocation",
    "AttemptLaunch",
    "Engine",
    "NodeObservation",
    "RemoteStart",
    "StopOutcome",
    "Wanted",
]

# How an attempt that is asked to stop shall end.
StopOutcome = Literal["stopped", "completed", "hung", "idle", "preempted"]
# With these a node's start script says what kept its runner from starting, where it can say nothing else.
EXIT_NO_PYTHON = 81
EXIT_NO_PLATFORM = 82
EXIT_REFUSED = 83
EXIT_UNFIT = 84
EXIT_UNDELIVERED = 85


@dataclass(frozen=True)
class Wanted:
    """What an attempt asks of an engine that finds the machines by itself."""

    nodes: int
    flavor: Flavor
    # The job's own time limit, 0 for none, and the time that it has to stop.
    seconds: int = 0
    grace: int = 30


@dataclass(frozen=True)
class AttemptLaunch:
    """One attempt of a job, ready to be handed to an engine."""

    job_id: str
    attempt: int
    nodes: tuple[NodeLaunch, ...]
    # Values of the variables that the plan only names; never shown, never logged.
    secrets: dict[str, str] = field(default_factory=dict)
    # Where it goes, who asked for it, and what it asks for; `nodes` is empty where the engine finds the machines.
    pool: str = "local"
    owner: str = ""
    wanted: Wanted | None = None


@dataclass(frozen=True)
class RemoteStart:
    """How one node's runner is started on a machine that only the engine reaches.

    `script` is shell lines that start the runner of ONE node and end with it; they are the same for every node and
    may be seen by others. `variables` are secret: they reach the script as environment variables, never as text.
    """

    script: str
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Allocation:
    """A machine that an engine gave to an attempt: its name there, and the devices' indices on it."""

    node: str
    devices: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeObservation:
    """What an engine sees of one node of an attempt.

    * absent: the engine knows nothing of it; it was never started.
    * queued: the engine has it and has not started it yet; `reason` says why, in words.
    * alive: its runner lives (the report is the latest one, or None before the first).
    * ended: its runner wrote a final report and is gone.
    * lost: its runner is gone and left no final report.
    * unknown: the engine cannot tell at this moment.
    """

    node_index: int
    state: Literal["absent", "queued", "alive", "ended", "lost", "unknown"]
    report: NodeReport | None = None
    reason: str = ""
    # The next step, where there is one.
    hint: str = ""


class Engine(Protocol):
    """Hands attempts to whatever runs them. Every method may be called again after a crash."""

    name: str
    # Whether it has a queue of its own: attempts are handed over at once and wait there.
    queues: bool

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
        outcome: StopOutcome = "stopped",
    ) -> None:
        """Ask the attempt to stop: SIGTERM, grace, SIGKILL. Returns at once.

        With the outcome `completed`, its work is done and only its processes are left to end. With `hung`, it has
        failed because nothing happened for too long; with `idle`, because it used nothing for too long. With
        `preempted`, another job needs its machines.
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
