"""The platform in numbers, for whoever watches over it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import select, text

from trainshed.db import tables
from trainshed.db.engine import read
from trainshed.db.jobs import count_jobs
from trainshed.db.nodes import all_nodes
from trainshed.model.phase import Phase
from trainshed.services.platform import Platform

__all__ = ["Statistics", "check_database", "read_statistics"]


@dataclass(frozen=True)
class Statistics:
    """Numbers over all workspaces; no name of a job or a user is among them."""

    jobs: dict[Phase, int]
    # By kind: accelerators that exist, and those that attempts hold now.
    devices: dict[str, int]
    devices_held: dict[str, int]
    cpus: float
    cpus_held: float
    nodes: dict[str, int]


def read_statistics(platform: Platform) -> Statistics:
    """Count jobs, machines and devices. No permission is asked: the surface decides who may see it."""
    attempts, jobs = tables.attempts, tables.jobs
    query = (
        select(jobs.c.flavor, attempts.c.placements)
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(attempts.c.state != "ended")
    )
    with read(platform.engine) as connection:
        counted = count_jobs(connection)
        nodes = all_nodes(connection)
        held = connection.execute(query).all()
    devices: Counter[str] = Counter(device.kind for node in nodes for device in node.devices)
    devices_held: Counter[str] = Counter()
    cpus_held = 0.0
    for flavor, placements in held:
        for placement in placements:
            devices_held[flavor.partition(".")[0]] += len(placement.get("devices", ()))
            cpus_held += float(placement.get("cpus", 0))
    return Statistics(
        jobs={phase: counted.get(phase, 0) for phase in Phase},
        devices=dict(devices),
        devices_held={kind: devices_held[kind] for kind in devices},
        cpus=sum(node.cpus for node in nodes),
        cpus_held=cpus_held,
        nodes=dict(Counter(node.state for node in nodes)),
    )


def check_database(platform: Platform) -> None:
    """Raise Unavailable if the database does not answer."""
    with read(platform.engine) as connection:
        connection.execute(text("SELECT 1"))
