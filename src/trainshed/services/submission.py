"""Submitting a job: everything is checked first, then one row is written."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, replace
from typing import Any

from trainshed.db import jobs as db_jobs
from trainshed.db import workspaces as db_workspaces
from trainshed.db.engine import begin, read
from trainshed.db.events import add_event
from trainshed.db.jobs import JobRow
from trainshed.db.nodes import all_nodes
from trainshed.dialects.plan import check_names, plan_launch
from trainshed.dialects.planned_job import PlannedJob
from trainshed.model.engines import find_engine
from trainshed.model.errors import (
    Conflict,
    InvalidInput,
    NotAllowed,
    NotFound,
    TooLarge,
    TrainshedError,
    Unavailable,
    suggest,
)
from trainshed.model.flavor import Flavor, Node, find_flavor, preset_flavors
from trainshed.model.host_folder import is_host_url
from trainshed.model.job_spec import JobSpec, parse_job_spec
from trainshed.model.launch_plan import Environment, to_json
from trainshed.model.names import check_job_name, make_up_job_name, parse_obs_url
from trainshed.model.phase import Detail, Phase
from trainshed.model.queue import Placement, could_ever_fit
from trainshed.services.access import require
from trainshed.services.buckets import readable_bucket, writable_bucket
from trainshed.services.code import CODE_BUCKET, find_snapshot
from trainshed.services.host_folders import check_host_input
from trainshed.services.identity import Caller
from trainshed.services.job_credentials import load_job_secrets, store_job_secrets
from trainshed.services.job_variables import CREDENTIAL_NAMES, platform_variables
from trainshed.services.job_view import JobView, view_job
from trainshed.services.platform import Platform
from trainshed.store.object_store import Bucket

__all__ = ["dry_run", "rerun_job", "submit"]

SNAPSHOT = "snapshot:"
_LARGEST_SECRET = 64 * 1024
_LARGEST_SPEC = 256 * 1024


@dataclass(frozen=True)
class _Checked:
    """A spec that can be run, and what was found out about it."""

    spec: JobSpec
    flavor: Flavor
    code_bucket: str
    code_prefix: str
    rehearsal: bool


def submit(platform: Platform, caller: Caller, spec: JobSpec) -> JobView:
    """Accept a job. Whatever is wrong with it is said now, and then nothing was written."""
    require(caller, "job.submit")
    checked = _check(platform, caller, spec)
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
    checked = _check(platform, caller, spec)
    engine = find_engine(checked.spec.engine, platform.settings.engines)
    placements = tuple(
        Placement(
            f"node-{index}",
            tuple(range(checked.flavor.devices)),
            checked.flavor.cpus,
            checked.flavor.memory_mb,
        )
        for index in range(checked.spec.nodes)
    )
    plans = plan_launch(
        PlannedJob(
            id="00000000-0000-0000-0000-000000000000",
            name=checked.spec.name or make_up_job_name(checked.spec.boot or checked.spec.command, "0000"),
            workspace_id=caller.workspace_id,
            spec=checked.spec.to_public_dict(),
            flavor=checked.flavor,
            attempt=1,
            code_bucket=checked.code_bucket,
            code_prefix=checked.code_prefix,
            environment=Environment(engine.name, engine.python, engine.packages),
            rehearsal=checked.rehearsal,
            platform_variables=platform_variables(platform),
            credential_names=CREDENTIAL_NAMES,
            owner=caller.user_name,
            workspace=_workspace_name(platform, caller.workspace_id),
        ),
        placements,
    )
    shown = checked.spec.model_dump(mode="json")
    shown["secrets"] = dict.fromkeys(checked.spec.secrets, "**********")
    return {"spec": shown, "flavor": to_json(checked.flavor), "launch": [to_json(plan) for plan in plans]}


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
    checked = _check(platform, caller, spec, recorded=old)
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


def _check(platform: Platform, caller: Caller, spec: JobSpec, recorded: JobRow | None = None) -> _Checked:
    with read(platform.engine) as connection:
        nodes = all_nodes(connection)
        if spec.name and spec.name in db_jobs.names_starting_with(connection, caller.workspace_id, spec.name):
            raise Conflict(
                f"There is already a job named '{spec.name}'.",
                hint="Choose another name, leave the name out, or delete the other job first.",
                code="name_taken",
                where="name",
            )
    if recorded is None:
        find_engine(spec.engine, platform.settings.engines)
    check_names(spec.to_public_dict())
    flavor = _check_flavor(spec, nodes)
    if spec.network == "open" and not platform.settings.open_network:
        raise NotAllowed(
            "This platform does not let jobs use the host's network.",
            hint="Use `network: platform`, or ask the administrator (setting open_network).",
            code="open_network_forbidden",
            where="network",
        )
    for name, value in spec.secrets.items():
        if len(value.get_secret_value()) > _LARGEST_SECRET:
            raise TooLarge(f"The secret '{name}' is larger than 64 KiB.", where=f"secrets.{name}")
    inputs = {name: _check_input(platform, caller, name, url) for name, url in spec.inputs.items()}
    for name, url in spec.outputs.items():
        _check_target(platform, caller, url, f"outputs.{name}")
    if spec.log_url:
        _check_target(platform, caller, spec.log_url, "log_url")
    bucket, prefix = ("", "") if recorded else _check_code(platform, caller, spec)
    checked = spec.model_copy(update={"inputs": inputs})
    if len(str(checked.to_public_dict())) > _LARGEST_SPEC:
        raise TooLarge("The job's description is larger than 256 KiB.", hint="Put data into an input.")
    pretend = flavor.devices > 0 and all(
        device.pretend for node in nodes for device in node.devices if device.kind == flavor.kind
    )
    return _Checked(checked, flavor, bucket, prefix, pretend)


def _check_flavor(spec: JobSpec, nodes: list[Node]) -> Flavor:
    if not nodes:
        raise Unavailable(
            "The platform does not know its machines yet.",
            hint="It looks for them right after its start; try again in a few seconds.",
            code="no_nodes",
        )
    flavor = find_flavor(spec.flavor, preset_flavors(nodes))
    if not could_ever_fit(spec.nodes, flavor, nodes):
        raise InvalidInput(
            f"{spec.nodes} nodes of {flavor.name} ({flavor.describe()} each) are more than all machines have.",
            hint="Use fewer nodes or a smaller flavor; `trainshed nodes` shows what is there.",
            code="never_fits",
            where="nodes",
        )
    return flavor


def _check_input(platform: Platform, caller: Caller, name: str, text: str) -> str:
    """The input's URL as it is used: what was written without a slash but is a folder gets one."""
    where = f"inputs.{name}"
    if is_host_url(text):
        return check_host_input(platform, caller, text, where)
    url = parse_obs_url(text, where)
    with _At(where):
        _check_own(caller, readable_bucket(platform, caller, url.bucket))
    if not url.key:
        return str(url)
    if not url.is_folder:
        try:
            platform.store.info(url.bucket, url.key)
            return str(url)
        except NotFound:
            url = url.as_folder()
    if platform.store.list(url.bucket, url.key, limit=1).objects:
        return str(url)
    raise NotFound(
        f"The input '{text[:200]}' does not exist.",
        hint=f"`trainshed obs ls obs://{url.bucket}/` shows what is there.",
        code="no_such_input",
        where=where,
    )


def _check_target(platform: Platform, caller: Caller, text: str, where: str) -> None:
    with _At(where):
        _check_own(caller, writable_bucket(platform, caller, parse_obs_url(text, where).bucket))


def _check_own(caller: Caller, bucket: Bucket) -> None:
    """A job stays within its workspace, whoever submits it: an administrator sees more, a job does not."""
    if bucket.workspace_id != caller.workspace_id:
        raise NotAllowed(
            f"The bucket '{bucket.name}' belongs to another workspace.",
            hint="A job uses buckets of its own workspace only: submit it there, or copy the data.",
            code="foreign_bucket",
        )


def _check_code(platform: Platform, caller: Caller, spec: JobSpec) -> tuple[str, str]:
    """Where the code lies if it is snapshotted already; the boot file must be in it."""
    if not spec.code:
        return "", ""
    if spec.code.startswith(SNAPSHOT):
        digest = spec.code.removeprefix(SNAPSHOT)
        snapshot = find_snapshot(platform, caller.workspace_id, digest)
        if snapshot is None:
            raise NotFound(
                f"There is no code snapshot {digest[:64]}.",
                hint="Upload the code first: PUT /api/v1/code/<digest>.",
                code="no_such_snapshot",
                where="code",
            )
        _check_boot(platform, CODE_BUCKET, snapshot.prefix, spec.boot)
        return CODE_BUCKET, snapshot.prefix
    if not spec.code.startswith(("obs://", "s3://")):
        raise InvalidInput(
            f"The code '{spec.code[:200]}' is a folder on your machine, not on the platform.",
            hint="Submit with `trainshed run` or the Python client (they upload it), or use obs://bucket/folder/.",
            code="code_not_uploaded",
            where="code",
        )
    url = parse_obs_url(spec.code, "code")
    url = url.as_folder() if url.key else url
    with _At("code"):
        _check_own(caller, readable_bucket(platform, caller, url.bucket))
    if not platform.store.list(url.bucket, url.key, limit=1).objects:
        raise NotFound(
            f"The code folder '{spec.code[:200]}' does not exist or is empty.",
            hint=f"`trainshed obs ls obs://{url.bucket}/` shows what is there.",
            code="no_code_folder",
            where="code",
        )
    _check_boot(platform, url.bucket, url.key, spec.boot)
    # The control loop makes the job's own copy before anything else happens.
    return "", ""


def _check_boot(platform: Platform, bucket: str, prefix: str, boot: str) -> None:
    if not boot:
        return
    try:
        platform.store.info(bucket, prefix + boot)
    except NotFound:
        folder = prefix + (boot.rpartition("/")[0] + "/" if "/" in boot else "")
        listing = platform.store.list(bucket, folder, delimiter="/", limit=200)
        scripts = [
            info.key.removeprefix(prefix) for info in listing.objects if info.key.endswith((".py", ".sh"))
        ]
        raise NotFound(
            f"The boot file '{boot[:200]}' is not in the code folder.",
            hint=suggest(boot, scripts[:20]) or "The folder holds no .py or .sh file.",
            code="no_boot_file",
            where="boot",
        ) from None


class _At:
    """Says which field of the job an error is about."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, fault: BaseException | None, _trace: object) -> None:
        if isinstance(fault, TrainshedError):
            fault.where = self._where


def _new_row(platform: Platform, caller: Caller, checked: _Checked, suffix_length: int = 4) -> JobRow:
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
    platform.ring()
    with read(platform.engine) as connection:
        return view_job(platform, connection, row)


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
