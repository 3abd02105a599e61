"""Pending: ask the queue policy who starts, write that down, then hand the attempt to its engine."""

from __future__ import annotations

from dataclasses import replace

from trainshed.control.context import Control
from trainshed.control.making_room import make_room
from trainshed.control.planning import plan_attempt
from trainshed.control.queue_view import QueueView, placement_from_row, placement_to_row
from trainshed.control.submissions import Submissions
from trainshed.db.attempts import AttemptRow, insert_attempt
from trainshed.db.engine import begin
from trainshed.db.jobs import JobRow, change_job
from trainshed.dialects.world import OWN_PORTS, PORT_BLOCK
from trainshed.engines.engine import AttemptLaunch
from trainshed.model.attempt import Ending
from trainshed.model.errors import NotFound
from trainshed.model.flavor import Flavor, Node
from trainshed.model.launch_plan import NodeLaunch, to_json
from trainshed.model.phase import Detail, Phase
from trainshed.model.queue import Held, Placement, plan_queue

__all__ = ["admit", "hand_over", "launch_of", "submit_attempt"]

# More than so many do not wait in another queue at once: the rest wait here and cost it nothing.
_MOST_HANDED_OVER = 500
# So many are written in one transaction: other writers wait no longer than that takes.
_AT_ONCE = 50


def admit(control: Control, queue: QueueView, submissions: Submissions) -> int:
    """Start every job that the policy lets start; the number of them."""
    stopped = [*queue.to_hand_over, *queue.stranded, *(queue.jobs[item.job_id] for item in queue.waiting)]
    for job in stopped:
        if job.stop_requested:
            _stop_waiting(control, job)
    waiting = [request for request in queue.waiting if not queue.jobs[request.job_id].stop_requested]
    plan = plan_queue(waiting, queue.held, queue.nodes, control.clock(), explain=False)
    started = hand_over(control, queue, submissions)
    taken_ports = {placement.ports for held in queue.held for placement in held.placements}
    chosen: list[tuple[JobRow, AttemptRow]] = []
    for admission in plan.admissions:
        job = queue.jobs[admission.job_id]
        placements = _with_device_addresses(admission.placements, queue.flavor_of(job).kind, queue.nodes)
        if job.spec.get("network") == "open":
            placements = _with_ports(placements, taken_ports)
        now = control.clock()
        attempt = AttemptRow(
            job_id=job.id,
            attempt=job.attempt + 1,
            engine="local",
            placements=[placement_to_row(placement) for placement in placements],
            # Started below, or by the next loop: an attempt that is written is looked for, and started if it is absent.
            state="running",
            created_at=now,
            started_at=now,
        )
        chosen.append((job, attempt))
    for job, attempt in _write_attempts(control, chosen):
        submit_attempt(control, job, attempt, queue, submissions)
        started += 1
    admitted = {admission.job_id: admission for admission in plan.admissions}
    left = [request for request in waiting if request.job_id not in admitted]
    if left and any(held.is_preemptible for held in queue.held):
        new = [
            Held(request.job_id, request.name, request.flavor.kind, admitted[request.job_id].placements)
            for request in waiting
            if request.job_id in admitted
        ]
        make_room(control, queue, left, [*queue.held, *new])
    return started


def _write_attempts(
    control: Control, chosen: list[tuple[JobRow, AttemptRow]]
) -> list[tuple[JobRow, AttemptRow]]:
    """Pending -> Running for all jobs that start now; those that nobody else has changed meanwhile."""
    written: list[tuple[JobRow, AttemptRow]] = []
    for start in range(0, len(chosen), _AT_ONCE):
        with begin(control.database) as connection:
            for job, attempt in chosen[start : start + _AT_ONCE]:
                changed = change_job(
                    connection,
                    job,
                    phase=Phase.RUNNING,
                    detail=Detail.STARTING.value,
                    attempt=attempt.attempt,
                    started_at=job.started_at or attempt.created_at,
                    wait=None,
                )
                if changed is None:
                    continue
                insert_attempt(connection, attempt)
                control.grant_credentials(connection, changed)
                where = ", ".join(sorted({place["node"] for place in attempt.placements}))
                control.tell(connection, changed, f"Attempt {attempt.attempt} starts on {where}.")
                written.append((changed, attempt))
    return written


def hand_over(control: Control, queue: QueueView, submissions: Submissions) -> int:
    """Hand jobs to engines that have a queue of their own; the number of them.

    The attempts are written first, as everywhere; a job stays Pending until its nodes live.
    """
    room = _MOST_HANDED_OVER - sum(queue.is_handed_over(job) for job in queue.jobs.values())
    chosen: list[tuple[JobRow, Flavor]] = []
    for job in queue.to_hand_over:
        if job.stop_requested or len(chosen) >= room:
            continue
        try:
            chosen.append((job, queue.flavor_of(job)))
        except NotFound:
            # The machines that gave the flavor its name are gone for now.
            continue
    for start in range(0, len(chosen), _AT_ONCE):
        written: list[tuple[JobRow, AttemptRow, Flavor]] = []
        with begin(control.database) as connection:
            for job, flavor in chosen[start : start + _AT_ONCE]:
                share = Placement("", (), flavor.cpus, flavor.memory_mb)
                attempt = AttemptRow(
                    job_id=job.id,
                    attempt=job.attempt + 1,
                    engine=queue.pools[job.id].engine,
                    placements=[placement_to_row(share) for _ in range(job.nodes)],
                    state="submitting",
                    created_at=control.clock(),
                )
                changed = change_job(
                    connection, job, detail=Detail.IN_SLURM.value, attempt=attempt.attempt, wait=None
                )
                if changed is None:
                    continue
                insert_attempt(connection, attempt)
                words = f"Attempt {attempt.attempt} is handed to Slurm, pool {queue.pools[job.id].name}."
                control.tell(connection, changed, words)
                written.append((changed, attempt, flavor))
        for changed, attempt, flavor in written:
            submissions.begin(changed, attempt, flavor, queue.pools[changed.id])
    return len(chosen)


def submit_attempt(
    control: Control, job: JobRow, attempt: AttemptRow, queue: QueueView, submissions: Submissions
) -> None:
    """Hand an attempt to its engine. Safe to repeat: an engine starts an attempt once."""
    flavor = queue.flavor_of(job)
    if control.engines[attempt.engine].queues:
        submissions.begin(job, attempt, flavor, queue.pools[job.id])
        return
    placements = tuple(placement_from_row(row) for row in attempt.placements)
    nodes = launch_of(control, job, attempt.attempt, flavor, placements)
    secrets = control.open_secrets(job)
    if any(node.ssh_port for node in nodes):
        secrets |= control.open_ssh_keys(job)
    control.engines[attempt.engine].submit(AttemptLaunch(job.id, attempt.attempt, nodes, secrets=secrets))


def launch_of(
    control: Control, job: JobRow, attempt: int, flavor: Flavor, placements: tuple[Placement, ...]
) -> tuple[NodeLaunch, ...]:
    """The launch plans of an attempt."""
    return plan_attempt(
        control.database,
        job,
        attempt,
        flavor,
        placements,
        platform_variables=control.platform_variables,
        credential_names=control.credential_names,
    )


def _with_device_addresses(
    placements: tuple[Placement, ...], kind: str, nodes: tuple[Node, ...]
) -> tuple[Placement, ...]:
    """Placements with the addresses that their machines' devices have; all of them or none, so that a rank table
    never mixes real ones with invented ones."""
    known = {
        (node.name, device.index): device.address
        for node in nodes
        for device in node.devices
        if device.kind == kind
    }
    found = [
        tuple(known.get((placement.node, device), "") for device in placement.devices)
        for placement in placements
    ]
    if not all(address for addresses in found for address in addresses):
        return placements
    return tuple(
        replace(placement, device_addresses=addresses)
        for placement, addresses in zip(placements, found, strict=True)
    )


def _with_ports(placements: tuple[Placement, ...], taken: set[int]) -> tuple[Placement, ...]:
    """Placements with a block of ports that no other job on the machines' own network has."""
    base = next(
        base for base in range(OWN_PORTS, OWN_PORTS + 1024 * PORT_BLOCK, PORT_BLOCK) if base not in taken
    )
    taken.add(base)
    return tuple(replace(placement, ports=base) for placement in placements)


def _stop_waiting(control: Control, job: JobRow) -> None:
    ending = Ending("stopped", "stop", "stopped", job.stop_reason or "The job was stopped before it started.")
    with begin(control.database) as connection:
        changed = change_job(
            connection,
            job,
            phase=Phase.TERMINATED,
            detail="",
            ending=to_json(ending),
            ended_at=control.clock(),
        )
        if changed is not None:
            control.tell(connection, changed, ending.message)
            control.notify(connection, changed, "stopped")
