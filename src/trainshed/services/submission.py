"""Submitting a job: everything is checked first, then one row is written."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from typing import Any

from trainshed.db import jobs as db_jobs
from trainshed.db import workspaces as db_workspaces
from trainshed.db.engine import begin, read
from trainshed.db.events import add_event
from trainshed.db.jobs import JobRow
from trainshed.db.nodes import all_nodes
from trainshed.dialects.plan import plan_launch
from trainshed.dialects.planned_job import PlannedJob
from trainshed.engines.engine import AttemptLaunch, Wanted
from trainshed.model.engines import match_engine
from trainshed.model.errors import Conflict, NotFound
from trainshed.model.job_spec import JobSpec, parse_job_spec
from trainshed.model.launch_plan import Environment, to_json
from trainshed.model.names import check_job_name, make_up_job_name
from trainshed.model.phase import Detail, Phase
from trainshed.model.pools import find_pool, nodes_of
from trainshed.model.queue import Placement
from trainshed.model.rehearsal_load import warn_of_load
from trainshed.services.access import require
from trainshed.services.code import find_snapshot
from trainshed.services.identity import Caller
from trainshed.services.job_credentials import load_job_secrets, store_job_secrets
from trainshed.services.job_variables import CREDENTIAL_NAMES, platform_variables, remote_variables
from trainshed.services.job_view import JobView, view_job
from trainshed.services.platform import Platform
from trainshed.services.remote_placement import guess_places, network_of
from trainshed.services.slurm import slurm_engine
from trainshed.services.submission_checks import SNAPSHOT, CheckedSpec, check_spec

__all__ = ["dry_run", "rerun_job", "submit"]

_NO_JOB = "00000000-0000-0000-0000-000000000000"
_PLACED_LATER = (
    "The nodes use their machines' own network. Their addresses, the first port and the indices of their devices are "
    "known once the cluster has placed them; others stand in their places here."
)


def submit(platform: Platform, caller: Caller, spec: JobSpec) -> JobView:
    """Accept a job. Whatever is wrong with it is said now, and then nothing was written."""
    require(caller, "job.submit")
    checked = check_spec(platform, caller, spec)
    secrets = {name: value.get_secret_value() for name, value in checked.spec.secrets.items()}
    said = f"Submitted by {caller.user_name}."
    row = _new_row(platform, caller, checked)
    try:
        view = _insert(platform, caller, row, secrets, said)
    except Conflict:
        if spec.name:
            raise
        # The name that we made up was taken by chance: the next one is longer.
        row = _new_row(platform, caller, checked, suffix_length=12)
        view = _insert(platform, caller, row, secrets, said)
    if spec.code.startswith(SNAPSHOT) and not _is_still_there(platform, row, spec):
        _withdraw(platform, row)
        raise Conflict(
            "The code snapshot was removed at this very moment.",
            hint="Submit again; the code is uploaded again.",
            code="snapshot_gone",
            where="code",
        )
    return view


def dry_run(platform: Platform, caller: Caller, spec: JobSpec) -> dict[str, Any]:
    """What `submit` would run: the spec with its defaults filled in and the launch plan of every node."""
    require(caller, "job.submit")
    checked = check_spec(platform, caller, spec)
    match = match_engine(checked.spec.engine, platform.settings.engines)
    engine = match.engine
    placements, seen, variables = _guess_world(platform, checked)
    plans = plan_launch(
        PlannedJob(
            id=_NO_JOB,
            name=checked.spec.name or make_up_job_name(checked.spec.boot or checked.spec.command, "0000"),
            workspace_id=caller.workspace_id,
            spec=seen,
            flavor=checked.flavor,
            attempt=1,
            code_bucket=checked.code_bucket,
            code_prefix=checked.code_prefix,
            environment=Environment(engine.name, engine.python, engine.packages),
            rehearsal=checked.rehearsal,
            platform_variables=variables,
            credential_names=CREDENTIAL_NAMES,
            owner=caller.user_name,
            workspace=_workspace_name(platform, caller.workspace_id),
        ),
        placements,
    )
    shown = checked.spec.model_dump(mode="json")
    shown["secrets"] = dict.fromkeys(checked.spec.secrets, "**********")
    return {
        "spec": shown,
        "flavor": to_json(checked.flavor),
        "notes": [
            *([match.note] if match.note else []),
            *_warn_of_rehearsal(platform, checked, engine.name),
            *([_PLACED_LATER] if placements[0].address else []),
        ],
        "launch": [to_json(plan) for plan in plans],
        **_batch_script(platform, caller, checked),
    }


def _guess_world(
    platform: Platform, checked: CheckedSpec
) -> tuple[tuple[Placement, ...], dict[str, Any], dict[str, str]]:
    """Where the job would be, its spec as it would be planned there, and how it would find the platform."""
    spec, flavor = checked.spec, checked.flavor
    if find_pool(spec.pool, platform.settings.all_pools).engine != "local":
        network = network_of(spec.network, spec.nodes)
        seen = {**spec.to_public_dict(), "network": network}
        return guess_places(flavor, spec.nodes, spec.network), seen, remote_variables(platform, network)
    places = tuple(
        Placement(f"node-{index}", tuple(range(flavor.devices)), flavor.cpus, flavor.memory_mb)
        for index in range(spec.nodes)
    )
    return places, spec.to_public_dict(), platform_variables(platform)


def _warn_of_rehearsal(platform: Platform, checked: CheckedSpec, engine: str) -> list[str]:
    if not checked.rehearsal:
        return []
    pool = find_pool(checked.spec.pool, platform.settings.all_pools)
    with read(platform.engine) as connection:
        machines = nodes_of(pool, all_nodes(connection))
    processes = checked.spec.processes or checked.flavor.devices
    return warn_of_load(engine, processes, checked.spec.nodes, machines)


def _batch_script(platform: Platform, caller: Caller, checked: CheckedSpec) -> dict[str, str]:
    """What Slurm would get, for a job whose pool is there."""
    spec = checked.spec
    pool = find_pool(spec.pool, platform.settings.all_pools)
    if pool.engine != "slurm":
        return {}
    wanted = Wanted(spec.nodes, checked.flavor, spec.time_limit, spec.grace)
    launch = AttemptLaunch(_NO_JOB, 1, (), pool=pool.name, owner=caller.user_name, wanted=wanted)
    return {"script": slurm_engine(platform).dry_run(launch)}


def rerun_job(platform: Platform, caller: Caller, ref: str, name: str = "") -> JobView:
    """Submit a job again with the very same code, environment, parameters and secrets."""
    require(caller, "job.rerun")
    if name:
        check_job_name(name)
    with read(platform.engine) as connection:
        old = db_jobs.find_job(connection, caller.workspace_id, ref)
        taken = db_jobs.names_starting_with(connection, caller.workspace_id, _stem(old.name) + "-")
    require(caller, "job.rerun", old)
    if old.phase is Phase.CREATING:
        raise Conflict(
            f"The code of '{old.name}' is not snapshotted yet.",
            hint="Try again in a moment.",
            code="too_early",
        )
    spec = parse_job_spec({**old.spec, "name": name or _next_name(old.name, taken)})
    checked = check_spec(platform, caller, spec, recorded=old)
    row = replace(
        _new_row(platform, caller, checked),
        environment=old.environment,
        code_bucket=old.code_bucket,
        code_prefix=old.code_prefix,
    )
    secrets = load_job_secrets(platform, old.id)
    message = f"Submitted by {caller.user_name} as a rerun of '{old.name}' ({old.id})."
    view = _insert(platform, caller, row, secrets, message)
    with read(platform.engine) as connection:
        origin = db_jobs.job_by_id(connection, old.id)
    if origin is None or origin.deleted_at is not None:
        _withdraw(platform, row)
        raise NotFound(f"'{old.name}' was deleted at this very moment.", code="unknown_job", where="job")
    return view


def _new_row(platform: Platform, caller: Caller, checked: CheckedSpec, suffix_length: int = 4) -> JobRow:
    spec = checked.spec
    job_id = str(uuid.uuid4())
    name = spec.name or make_up_job_name(spec.boot or spec.command, job_id.replace("-", "")[:suffix_length])
    return JobRow(
        id=job_id,
        workspace_id=caller.workspace_id,
        name=name,
        owner_id=caller.user_id,
        phase=Phase.CREATING,
        detail=Detail.SNAPSHOTTING.value,
        spec={**spec.to_public_dict(), "name": name},
        flavor=spec.flavor,
        nodes=spec.nodes,
        priority=spec.priority,
        preemptible=spec.preemptible,
        restarts=spec.restarts,
        created_at=platform.clock(),
        code_bucket=checked.code_bucket,
        code_prefix=checked.code_prefix,
        rehearsal=checked.rehearsal,
    )


def _insert(
    platform: Platform, caller: Caller, row: JobRow, secrets: dict[str, str], message: str
) -> JobView:
    with begin(platform.engine) as connection:
        if not db_workspaces.lock_workspace(connection, caller.workspace_id):
            raise NotFound("The workspace was deleted.", where="workspace")
        db_jobs.insert_job(connection, row)
        store_job_secrets(platform, connection, row.id, secrets)
        add_event(connection, row.id, row.created_at, "info", "platform", message)
        view = view_job(platform, connection, row, owners={caller.user_id: caller.user_name})
    platform.ring()
    return view


def _workspace_name(platform: Platform, workspace_id: str) -> str:
    with read(platform.engine) as connection:
        row = db_workspaces.workspace_by_id(connection, workspace_id)
    return row.name if row else "default"


def _is_still_there(platform: Platform, row: JobRow, spec: JobSpec) -> bool:
    known = find_snapshot(platform, row.workspace_id, spec.code.removeprefix(SNAPSHOT))
    return known is not None and known.prefix == row.code_prefix


def _withdraw(platform: Platform, row: JobRow) -> None:
    """Take back a job whose code went away while it was submitted. If it is under way already, it fails itself."""
    now = platform.clock()
    with begin(platform.engine) as connection:
        db_jobs.change_job(connection, row, phase=Phase.FAILED, detail="", ended_at=now, deleted_at=now)


def _stem(name: str) -> str:
    """The name without the number of a rerun: train-2 -> train."""
    stem = re.sub(r"-[0-9]{1,4}$", "", name)
    return stem[:58] or name[:58]


def _next_name(name: str, taken: set[str]) -> str:
    number = 2
    while f"{_stem(name)}-{number}" in taken or f"{_stem(name)}-{number}" == name:
        number += 1
    return f"{_stem(name)}-{number}"
