"""The queue as the policy sees it, read from the database. The loop and `explain` both use it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection

from trainshed.db.attempts import AttemptRow, current_attempts
from trainshed.db.jobs import JobRow, active_jobs
from trainshed.db.nodes import all_nodes
from trainshed.model.errors import NotFound
from trainshed.model.flavor import Flavor, Node, find_flavor
from trainshed.model.launch_plan import from_json
from trainshed.model.phase import Phase
from trainshed.model.pools import LOCAL_POOL, Pool, flavors_of, pool_of
from trainshed.model.queue import Held, Placement, Request

__all__ = ["QueueView", "load_queue", "placement_from_row", "placement_to_row"]


@dataclass(frozen=True)
class QueueView:
    """Who waits, who holds what, and which machines there are."""

    waiting: tuple[Request, ...]
    held: tuple[Held, ...]
    # The machines that the queue policy places jobs on; engines with a queue of their own have others.
    nodes: tuple[Node, ...]
    # Of each pool.
    flavors: dict[str, tuple[Flavor, ...]]
    jobs: dict[str, JobRow]
    # The latest attempt of each job that has one.
    attempts: dict[str, AttemptRow]
    # Jobs that keep out of the queue after failures, and until when.
    resting: dict[str, float] = field(default_factory=dict)
    # Jobs to be handed to an engine that has a queue of its own, in the order of their priority and age.
    to_hand_over: tuple[JobRow, ...] = ()
    # Jobs whose pool is gone from the settings.
    stranded: tuple[JobRow, ...] = ()
    pools: dict[str, Pool] = field(default_factory=dict)

    def flavor_of(self, job: JobRow) -> Flavor:
        """The flavor of a job, as its pool knows it."""
        pool = self.pools.get(job.id)
        return find_flavor(job.flavor, self.flavors.get(pool.name, ()) if pool else ())

    def is_handed_over(self, job: JobRow) -> bool:
        """Whether a job waits in the queue of its engine."""
        attempt = self.attempts.get(job.id)
        return job.phase is Phase.PENDING and attempt is not None and attempt.state != "ended"


def load_queue(
    connection: Connection,
    now: float,
    jobs: list[JobRow] | None = None,
    pools: Iterable[Pool] = (Pool(LOCAL_POOL),),
    attempts: dict[str, AttemptRow] | None = None,
) -> QueueView:
    """Read the queue; `jobs` are the active ones, and `attempts` their latest, if the caller has them already."""
    pools = tuple(pools)
    resting: dict[str, float] = {}
    jobs = active_jobs(connection) if jobs is None else jobs
    nodes = all_nodes(connection)
    attempts = current_attempts(connection) if attempts is None else attempts
    flavors = {pool.name: tuple(flavors_of(pool, nodes)) for pool in pools}
    waiting: list[Request] = []
    held: list[Held] = []
    to_hand_over: list[JobRow] = []
    stranded: list[JobRow] = []
    of_job: dict[str, Pool] = {}
    # Jobs for which others are leaving.
    claims = {(job.wait or {}).get("yields_to") for job in jobs if job.phase.holds_devices}
    for job in jobs:
        attempt = attempts.get(job.id)
        pool = pool_of(job.spec, pools)
        if pool is None:
            if job.phase is Phase.PENDING and (attempt is None or attempt.state == "ended"):
                stranded.append(job)
            continue
        of_job[job.id] = pool
        try:
            flavor = find_flavor(job.flavor, flavors[pool.name])
        except NotFound:
            # The machine that gave this flavor its name is gone for now; the job waits for it.
            flavor = Flavor(job.flavor, "cpu", 0, float("inf"), 0)
        if job.phase is Phase.PENDING and not job.stop_requested and (job.wait or {}).get("until", 0.0) > now:
            # It has failed several times and keeps out of the queue for a while.
            resting[job.id] = (job.wait or {})["until"]
        elif job.phase is Phase.PENDING and pool.engine != "local":
            if attempt is None or attempt.state == "ended":
                to_hand_over.append(job)
        elif job.phase is Phase.PENDING:
            since = job.queued_at or job.created_at
            waiting.append(
                Request(job.id, job.name, job.priority, since, job.nodes, flavor, job.id in claims)
            )
        elif job.phase.holds_devices and job.attempt:
            if attempt is None or attempt.state == "ended" or pool.engine != "local":
                continue
            limit = job.spec.get("time_limit", 0)
            held.append(
                Held(
                    job.id,
                    job.name,
                    flavor.kind,
                    tuple(placement_from_row(row) for row in attempt.placements),
                    (attempt.started_at or attempt.created_at) + limit if limit else None,
                    job.priority,
                    attempt.created_at,
                    job.preemptible,
                    job.stop_requested or bool((job.wait or {}).get("yields_to")),
                )
            )
    by_id = {job.id: job for job in jobs}
    return QueueView(
        tuple(waiting),
        tuple(held),
        tuple(node for node in nodes if node.engine == "local"),
        flavors,
        by_id,
        attempts,
        resting,
        tuple(to_hand_over),
        tuple(stranded),
        of_job,
    )


def placement_to_row(placement: Placement) -> dict[str, Any]:
    """A placement as it is stored with its attempt."""
    return asdict(placement)


def placement_from_row(row: dict[str, Any]) -> Placement:
    """A placement as it was stored."""
    return from_json(Placement, row)
