"""Entering a running job: who may, through which socket, and why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from trainshed.db import jobs as db
from trainshed.db.engine import read
from trainshed.db.jobs import JobRow
from trainshed.db.ssh_keys import ssh_key_by_fingerprint
from trainshed.db.users import user_by_id
from trainshed.db.workspaces import list_workspaces, roles_of_user
from trainshed.model.errors import Conflict, NotFound, TrainshedError, Unavailable
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch, from_json
from trainshed.model.phase import Phase
from trainshed.model.ssh import CLIENT_KEY, parse_public_key
from trainshed.services.access import require
from trainshed.services.identity import EVERYTHING, Caller, identify
from trainshed.services.platform import Platform
from trainshed.services.ssh_keys import certify, host_key_of, job_ssh_keys

__all__ = [
    "SshAccess",
    "SshEntry",
    "SshGate",
    "find_entry",
    "find_gate",
    "grant_access",
    "is_registered",
    "is_training",
]


@dataclass(frozen=True)
class SshAccess:
    """What an ssh client needs to enter a node of a job."""

    job_id: str
    job_name: str
    node: int
    nodes: int
    user: str
    # The key by which the node proves that it is the job's.
    host_key: str
    # A certificate for the caller's public key, good for a few minutes; empty when none was given.
    certificate: str = ""


@dataclass(frozen=True)
class SshGate:
    """Where a node of a running job answers ssh."""

    job: JobRow
    folder: RunFolder
    launch: NodeLaunch
    # On another machine: its runner has to call back.
    is_elsewhere: bool = False


@dataclass(frozen=True)
class SshEntry:
    """All that the platform's ssh port needs to carry a user's sessions into a job."""

    user_name: str
    job_id: str
    node: int
    gate: SshGate
    user: str
    client_key: str
    host_key: str


def grant_access(
    platform: Platform, caller: Caller, ref: str, node: int = 0, public_key: str = ""
) -> SshAccess:
    """Let the caller enter a node of a job. With a public key, the answer holds a certificate for it."""
    gate = find_gate(platform, caller, ref, node)
    certificate = ""
    if public_key:
        key, _ = parse_public_key(public_key)
        certificate = certify(platform, gate.job.id, gate.launch.user, key, caller.user_name)
    return SshAccess(
        job_id=gate.job.id,
        job_name=gate.job.name,
        node=node,
        nodes=gate.launch.node_count,
        user=gate.launch.user,
        host_key=host_key_of(platform, gate.job.id),
        certificate=certificate,
    )


def find_gate(platform: Platform, caller: Caller, ref: str, node: int = 0) -> SshGate:
    """The way to a node's ssh server, for who may stop the job: a shell is no less."""
    require(caller, "job.read")
    with read(platform.engine) as connection:
        job = db.find_job(connection, caller.workspace_id, ref)
    require(caller, "job.enter", job)
    if job.phase.is_terminal:
        raise Conflict(
            f"'{job.name}' has ended ({job.phase}): ssh reaches running jobs only.",
            hint=f"Its log and files are kept: `trainshed logs {job.name}`, `trainshed files {job.name}`.",
            code="job_ended",
        )
    if job.phase is not Phase.RUNNING:
        raise Conflict(
            f"'{job.name}' does not run yet: it is {job.phase}.",
            hint=f"`trainshed explain {job.name}` says what it waits for.",
            code="job_not_running",
        )
    if not 0 <= node < job.nodes:
        raise NotFound(
            f"'{job.name}' has no node {node}.",
            hint=f"Its nodes are 0 to {job.nodes - 1}.",
            code="no_such_node",
        )
    folder = platform.home.run_folder(job.id, job.attempt, node)
    try:
        launch = from_json(NodeLaunch, json.loads(folder.launch.read_text("utf-8")))
    except (OSError, ValueError):
        raise _not_ready(job, node) from None
    if not launch.ssh_port:
        raise Conflict(
            f"'{job.name}' does not answer ssh.",
            hint="Submit it with `ssh: true` (`--set ssh=true`); jobs of several nodes always answer.",
            code="ssh_off",
        )
    if folder.ssh_off.exists():
        raise Conflict(
            f"'{job.name}' does not answer ssh: {folder.ssh_off.read_text('utf-8')}.",
            hint="`trainshed doctor` on the platform's machine says what is missing.",
            code="ssh_off",
        )
    is_elsewhere = (folder.path / "claim.json").exists()
    if not (is_training(folder) if is_elsewhere else folder.ssh_gate.exists()):
        raise _not_ready(job, node)
    return SshGate(job, folder, launch, is_elsewhere)


def is_registered(platform: Platform, fingerprint: str) -> bool:
    """Whether a key belongs to a user who may still sign in."""
    with read(platform.engine) as connection:
        key = ssh_key_by_fingerprint(connection, fingerprint)
        user = user_by_id(connection, key.user_id) if key is not None else None
    return user is not None and user.disabled_at is None


def find_entry(platform: Platform, fingerprint: str, name: str) -> SshEntry:
    """The way into the job that a user name of the ssh port means, for the owner of a registered key.

    The name is a job's name or id, and `.N` behind it chooses a node: `my-job.1`.
    """
    ref, dot, number = name.rpartition(".")
    node = int(number) if dot and number.isdigit() else 0
    ref = ref if dot and number.isdigit() else name
    refusal: TrainshedError = NotFound(
        f"There is no job '{ref[:80]}'.", hint="The user name is a job's name or id: ssh -p PORT JOB@host."
    )
    for caller in _callers_of_key(platform, fingerprint):
        try:
            gate = find_gate(platform, caller, ref, node)
        except NotFound as fault:
            refusal = fault if fault.code == "no_such_node" else refusal
            continue
        return SshEntry(
            user_name=caller.user_name,
            job_id=gate.job.id,
            node=node,
            gate=gate,
            user=gate.launch.user,
            client_key=job_ssh_keys(platform, gate.job)[CLIENT_KEY],
            host_key=host_key_of(platform, gate.job.id),
        )
    raise refusal


def _callers_of_key(platform: Platform, fingerprint: str) -> Iterator[Caller]:
    """The owner of a key, in each of the owner's workspaces."""
    with read(platform.engine) as connection:
        key = ssh_key_by_fingerprint(connection, fingerprint)
        user = user_by_id(connection, key.user_id) if key is not None else None
        if user is None or user.disabled_at is not None:
            return
        if user.is_admin:
            workspaces = [row.id for row in list_workspaces(connection)]
        else:
            workspaces = [row.workspace_id for row in roles_of_user(connection, user.id)]
        callers = [identify(connection, user.id, workspace, EVERYTHING) for workspace in workspaces]
    yield from callers


def is_training(folder: RunFolder) -> bool:
    """Whether the processes of a node elsewhere run, as it told last."""
    try:
        return bool(json.loads(folder.status.read_bytes()).get("stage") == "training")
    except (OSError, ValueError):
        return False


def _not_ready(job: JobRow, node: int) -> Unavailable:
    return Unavailable(
        f"Node {node} of '{job.name}' is not ready for ssh yet ({job.detail or job.phase}).",
        hint="Try again in a moment: it answers once its processes have started.",
        code="ssh_not_ready",
    )
