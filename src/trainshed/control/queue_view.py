"""The queue as the policy sees it, read from the database. The loop and `explain` both use it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection

from trainshed.db.attempts import AttemptRow, current_attempts
from trainshed.db.jobs import JobRow, active_jobs
from trainshed.db.nodes import all_nodes
from trainshed.model.errors import NotFound
from trainshed.model.flavor import Flavor, Node, find_flavor, preset_flavors
from trainshed.model.launch_plan import from_json
from trainshed.model.phase import Phase
from trainshed.model.queue import Held, Placement, Request

__all__ = ["QueueView", "load_queue", "placement_from_row", "placement_to_row"]


@dataclass(frozen=True)
class QueueView:
    """Who waits, who holds what, and which machines there are."""

    waiting: tuple[Request, ...]
    held: tuple[Held, ...]
    nodes: tuple[Node, ...]
    flavors: tuple[Flavor, ...]
    jobs: dict[str, JobRow]
    # The latest attempt of each job that has one.
    attempts: dict[str, AttemptRow]
    # Jobs that keep out of the queue after failures, and until when.
    resting: dict[str, float] = field(default_factory=dict)


def load_queue(connection: Connection, now: float, jobs: list[JobRow] | None = None) -> QueueView:
    """Read the queue; `jobs` are the active ones if the caller has them already."""
    resting: dict[str, float] = {}
    jobs = active_jobs(connection) if jobs is None else jobs
    nodes = all_nodes(connection)
    attempts = current_attempts(connection)
    flavors = preset_flavors(nodes)
    waiting: list[Request] = []
    held: list[Held] = []
    for job in jobs:
        try:
            flavor = find_flavor(job.flavor, flavors)
        except NotFound:
            # The machine that gave this flavor its name is gone for now; the job waits for it.
            flavor = Flavor(job.flavor, "cpu", 0, float("inf"), 0)
        if job.phase is Phase.PENDING and not job.stop_requested and (job.wait or {}).get("until", 0.0) > now:
            # It has failed several times and keeps out of the queue for a while.
            resting[job.id] = (job.wait or {})["until"]
        elif job.phase is Phase.PENDING:
            waiting.append(
                Request(job.id, job.name, job.priority, job.queued_at or job.created_at, job.nodes, flavor)
            )
        elif job.phase.holds_devices and job.attempt:
            attempt = attempts.get(job.id)
            if attempt is None or attempt.state == "ended":
                continue
            limit = job.spec.get("time_limit", 0)
            held.append(
                Held(
                    job.id,
                    job.name,
                    flavor.kind,
                    tuple(placement_from_row(row) for row in attempt.placements),
                    (attempt.started_at or attempt.created_at) + limit if limit else None,
                )
            )
    by_id = {job.id: job for job in jobs}
    return QueueView(tuple(waiting), tuple(held), tuple(nodes), tuple(flavors), by_id, attempts, resting)


def placement_to_row(placement: Placement) -> dict[str, Any]:
    """A placement as it is stored with its attempt."""
    return asdict(placement)


def placement_from_row(row: dict[str, Any]) -> Placement:
    """A placement as it was stored."""
    return from_json(Placement, row)
