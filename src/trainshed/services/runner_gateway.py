"""What runners on other machines ask of the platform: to be told what to run, and to be heard.

A node checks in with what it found out about itself. When all nodes of the attempt are there, each gets its launch
plan, made with their real addresses and devices. From then on it reports; every answer tells whether to go on.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainshed.control.planning import JobNames, names_of, plan_attempt
from trainshed.db.attempts import AttemptRow, attempt_of, change_attempt, current_attempts
from trainshed.db.engine import begin, read
from trainshed.db.events import add_event
from trainshed.db.jobs import JobRow
from trainshed.db.nodes import all_nodes
from trainshed.db.workspaces import WorkspaceRow, workspace_by_id
from trainshed.durable import write_durably
from trainshed.model.attempt import NodeReport
from trainshed.model.errors import InvalidInput, TrainshedError, Unavailable
from trainshed.model.flavor import Node, find_flavor
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch, from_json, to_json
from trainshed.model.pools import find_pool, flavors_of
from trainshed.model.queue import Placement
from trainshed.model.ssh import KEY_NAMES
from trainshed.runner.log_archive import LogArchive, archive_prefix
from trainshed.runner.site import Site
from trainshed.services.attempt_tokens import AttemptCaller
from trainshed.services.carried_code import CarriedFile, carry_code
from trainshed.services.job_credentials import (
    create_job_credentials,
    grant_job_credentials,
    job_credentials,
    read_job_secrets,
)
from trainshed.services.job_variables import CREDENTIAL_NAMES, credential_variables, remote_variables
from trainshed.services.platform import Platform
from trainshed.services.remote_placement import (
    choose_ports,
    describe_places,
    interconnect_variables,
    network_of,
    place_nodes,
)
from trainshed.services.remote_site import RemoteSite, describe_site
from trainshed.services.runner_mirror import Claim, Mirror, Piece
from trainshed.services.slurm import slurm_engine
from trainshed.services.ssh_keys import job_ssh_keys
from trainshed.services.ssh_tunnels import answer_tunnel, wanted_tunnels
from trainshed.services.store_place import find_store
from trainshed.services.vault import write_once

__all__ = [
    "Heard",
    "RemoteSite",
    "Ticket",
    "Waiting",
    "answer_ssh",
    "check_in",
    "take_report",
    "ticket_to_json",
]


@dataclass(frozen=True)
class Waiting:
    """Not all nodes have checked in yet; if a stop is asked for, they need not."""

    missing: tuple[int, ...]
    stop: dict[str, Any] | None = None


@dataclass(frozen=True)
class Ticket:
    """All that a node needs to begin."""

    launch: NodeLaunch
    site: RemoteSite
    secrets: dict[str, str]
    clock: float
    # The code itself, where it is small.
    code: tuple[CarriedFile, ...] = ()


@dataclass(frozen=True)
class _Facts:
    """What a check-in needs of the database, read at once."""

    nodes: list[Node]
    names: JobNames
    workspace: WorkspaceRow | None
    secrets: dict[str, str]


@dataclass(frozen=True)
class Heard:
    """The answer to a report: how far each file has come, whether all nodes may begin, and whether to stop."""

    sizes: dict[str, int]
    go: bool
    stop: dict[str, Any] | None
    # Connections by ssh for which the node is to call back.
    ssh: list[str]


def check_in(platform: Platform, runner: AttemptCaller, claim: Claim, clock: float) -> Waiting | Ticket:
    """Take a node for the process that asks, and tell it what to run once all nodes are there."""
    job, attempt = runner.job, runner.attempt.attempt
    _require_node(job, claim.node)
    mirrors = _mirrors(platform, job, attempt)
    mirrors[claim.node].claim(replace(claim, clock_lag=platform.clock() - clock))
    mirrors[claim.node].note_heard()
    claims = [mirror.read_claim() for mirror in mirrors]
    missing = tuple(index for index, present in enumerate(claims) if present is None)
    if missing:
        return Waiting(missing, mirrors[claim.node].asked_to_stop())
    with read(platform.engine) as connection:
        facts = _Facts(
            all_nodes(connection),
            names_of(connection, job),
            workspace_by_id(connection, job.workspace_id),
            read_job_secrets(platform, connection, job.id),
        )
    launches, is_granted = _plan_once(
        platform, runner, [present for present in claims if present is not None], facts
    )
    launch = launches[claim.node]
    secrets = _open_secrets(platform, job, launch, facts.secrets, is_granted=is_granted)
    _prepare(platform, mirrors[claim.node].folder, launch, secrets)
    code = carry_code(platform.store, launch.code_bucket, launch.code_prefix)
    site = describe_site(platform, job, launch.network, facts.workspace)
    return Ticket(launch, site, secrets, platform.clock(), code)


def take_report(
    platform: Platform,
    runner: AttemptCaller,
    node: int,
    nonce: str,
    *,
    pieces: Sequence[Piece] = (),
    report: dict[str, Any] | None = None,
    ready: bool = False,
) -> Heard:
    """Take what a runner sends: pieces of files first, then its report. To send it again does no harm."""
    job, attempt = runner.job, runner.attempt.attempt
    _require_node(job, node)
    mirrors = _mirrors(platform, job, attempt)
    mirror = mirrors[node]
    claim = mirror.require_claim(nonce)
    mirror.note_heard()
    mirror.append(pieces)
    _forget_archived(platform, job, attempt, node, mirror, pieces)
    if ready:
        mirror.set_ready()
    if report is not None:
        heard = _read_report(report, job.id, attempt, node)
        # Only an end is urgent: others wait for the machine. The loop sees all else at its next look.
        if mirror.write_report(to_json(_on_our_clock(heard, claim.clock_lag))) and heard.ending is not None:
            platform.ring()
    # A node that has ended without having been ready will not come: the others need not wait, they are stopped.
    go = all(each.is_ready() for each in mirrors)
    return Heard(mirror.sizes(), go, mirror.asked_to_stop(), wanted_tunnels(mirror.folder))


def answer_ssh(platform: Platform, runner: AttemptCaller, node: int, nonce: str, name: str) -> socket.socket:
    """The connection of somebody who wants to enter this node, for its runner, which calls back."""
    _require_node(runner.job, node)
    mirror = _mirrors(platform, runner.job, runner.attempt.attempt)[node]
    mirror.require_claim(nonce)
    return answer_tunnel(mirror.folder, name)


def _forget_archived(
    platform: Platform, job: JobRow, attempt: int, node: int, mirror: Mirror, pieces: Sequence[Piece]
) -> None:
    """Keep the copies of long logs short: what the node has archived need not lie here as well."""
    segment = platform.settings.log_segment_mb << 20
    for piece in pieces:
        passes = piece.offset // segment != (piece.offset + len(piece.data)) // segment
        if passes and piece.path.startswith("logs/"):
            stream = piece.path.removeprefix("logs/")
            stream = stream if stream.startswith("files/") else stream.removesuffix(".log")
            archive = LogArchive(platform.store, archive_prefix(job.id, attempt, node), segment, [])
            mirror.forget_archived(piece.path, archive.size(stream))


def ticket_to_json(ticket: Ticket) -> dict[str, Any]:
    """A ticket as it is sent."""
    return {
        "launch": to_json(ticket.launch),
        "site": to_json(ticket.site),
        "secrets": ticket.secrets,
        "clock": ticket.clock,
        "code": ticket.code,
    }


def _require_node(job: JobRow, node: int) -> None:
    if not 0 <= node < job.nodes:
        raise InvalidInput(f"The job has {job.nodes} nodes; there is no node {node}.", where="node")


def _mirrors(platform: Platform, job: JobRow, attempt: int) -> list[Mirror]:
    return [Mirror(platform.home, job.id, attempt, index) for index in range(job.nodes)]


def _plan_once(
    platform: Platform, runner: AttemptCaller, claims: list[Claim], facts: _Facts
) -> tuple[tuple[NodeLaunch, ...], bool]:
    """The plans of all nodes: made by the first that asks, the same for all that ask later.

    Also whether the job's credentials were made valid just now.
    """
    is_granted = False
    job, attempt = runner.job, runner.attempt.attempt
    file = platform.home.run_folder(job.id, attempt, 0).path.parent / "plan.json"
    if not file.exists():
        placements, launches = _plan(platform, job, attempt, claims, facts)
        plan = {
            "placements": [to_json(place) for place in placements],
            "launches": [to_json(each) for each in launches],
        }
        write_once(file, json.dumps(plan).encode())
    made = json.loads(file.read_bytes())
    if [item["node"] for item in runner.attempt.placements] != [item["node"] for item in made["placements"]]:
        # Where the nodes really are, and what they have: people see it, and logs are counted by it.
        places = [from_json(Placement, item) for item in made["placements"]]
        with begin(platform.engine) as connection:
            known = attempt_of(connection, job.id, attempt)
            change_attempt(connection, runner.attempt, placements=made["placements"])
            if known is None or known.placements != made["placements"]:
                add_event(connection, job.id, platform.clock(), "info", "control", describe_places(places))
            if known is not None and known.state != "ended":
                grant_job_credentials(platform, connection, job)
                is_granted = True
    return tuple(from_json(NodeLaunch, item) for item in made["launches"]), is_granted


def _plan(
    platform: Platform, job: JobRow, attempt: int, claims: list[Claim], facts: _Facts
) -> tuple[tuple[Placement, ...], tuple[NodeLaunch, ...]]:
    network = network_of(str(job.spec.get("network", "platform")), job.nodes)
    others: list[AttemptRow] = []
    if network == "open":
        # Only whoever shares the machines' own network shares its ports.
        with read(platform.engine) as connection:
            others = [row for row in current_attempts(connection).values() if row.job_id != job.id]
    pool = find_pool(str(job.spec.get("pool", "")), platform.settings.all_pools)
    flavor = find_flavor(job.flavor, flavors_of(pool, facts.nodes))
    # Those of others that run may not be in use yet.
    taken = {int(place.get("ports", 0)) for row in others if row.state != "ended" for place in row.placements}
    ports = choose_ports(job.id, claims, taken) if network == "open" else 0
    given: dict[str, tuple[int, ...]] = {}
    if flavor.devices and any(len(claim.devices) < flavor.devices for claim in claims):
        given = _find_devices(platform, job.id, attempt)
    placements = place_nodes(claims, flavor, ports, given)
    return placements, plan_attempt(
        platform.engine,
        job,
        attempt,
        flavor,
        placements,
        platform_variables=remote_variables(platform, network) | interconnect_variables(pool.addresses),
        credential_names=CREDENTIAL_NAMES,
        spec={**job.spec, "network": network},
        names=facts.names,
    )


def _find_devices(platform: Platform, job_id: str, attempt: int) -> dict[str, tuple[int, ...]]:
    """The indices of the nodes' devices by their machines' names, as the cluster's controller tells them.

    Slurm sets variables on the machines only for GPUs. A job that took the wrong devices would disturb another one:
    a controller that does not answer is waited for.
    """
    try:
        found = slurm_engine(platform).allocation(job_id, attempt)
    except TrainshedError as fault:
        raise Unavailable(f"Slurm does not tell the job's devices: {fault.message}") from fault
    if not found:
        raise Unavailable("Slurm does not tell the job's devices yet.")
    return {item.node: item.devices for item in found}


def _open_secrets(
    platform: Platform, job: JobRow, launch: NodeLaunch, own: dict[str, str], *, is_granted: bool
) -> dict[str, str]:
    make = job_credentials if is_granted else create_job_credentials
    credentials = make(platform, job.id)
    values = {**own, **credential_variables(credentials, (*job.spec.get("environment", {}), *own))}
    secrets = {name: values[name] for name in launch.secret_names}
    if launch.ssh_port:
        keys = job_ssh_keys(platform, job)
        secrets |= {name: keys[name] for name in KEY_NAMES if name in keys}
    return secrets


def _prepare(platform: Platform, folder: RunFolder, launch: NodeLaunch, secrets: dict[str, str]) -> None:
    """Leave here what brings home the copy's logs if the node is lost."""
    settings = platform.settings
    site = Site(
        store_url=find_store(platform.home, settings),
        environments=str(platform.home.environments),
        doorbell=str(platform.home.doorbell),
        log_segment_bytes=settings.log_segment_mb << 20,
        checkpoint_bytes=settings.checkpoints_gb << 30,
    )
    write_durably(folder.site, to_json(site))
    write_durably(folder.secrets, secrets)
    write_durably(folder.launch, to_json(launch))


def _read_report(data: dict[str, Any], job_id: str, attempt: int, node: int) -> NodeReport:
    try:
        report = from_json(NodeReport, data)
        is_right = (report.job_id, report.attempt, report.node_index) == (job_id, attempt, node)
    except (TypeError, ValueError, KeyError, AttributeError):
        is_right = False
    if not is_right:
        raise InvalidInput("The report cannot be read, or is of another node.", where="report")
    return report


def _on_our_clock(report: NodeReport, lag: float) -> NodeReport:
    """The report with its times as the platform's clock would have told them."""
    if abs(lag) < 2:
        return report

    def shift(moment: float) -> float:
        return moment + lag if moment else moment

    ending = report.ending
    return replace(
        report,
        timeline=tuple(replace(entry, time=shift(entry.time)) for entry in report.timeline),
        ranks=tuple(replace(end, time=shift(end.time)) for end in report.ranks),
        ending=replace(ending, time=shift(ending.time)) if ending else None,
        started_at=shift(report.started_at),
        ended_at=shift(report.ended_at),
        held_since=shift(report.held_since),
        silent_since=shift(report.silent_since),
        idle_since=shift(report.idle_since),
    )
