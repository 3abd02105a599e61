"""What is checked before a job is accepted: everything that can be known now."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.db import jobs as db_jobs
from trainshed.db.engine import read
from trainshed.db.jobs import JobRow
from trainshed.db.nodes import all_nodes
from trainshed.dialects.plan import check_names
from trainshed.engines.slurm.accounts import find_account
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
from trainshed.model.job_spec import JobSpec
from trainshed.model.names import parse_obs_url
from trainshed.model.pools import find_pool, nodes_of
from trainshed.model.queue import could_ever_fit
from trainshed.model.rehearsal_load import check_load
from trainshed.model.world_shape import check_device_count, check_world_shape
from trainshed.services.buckets import readable_bucket, writable_bucket
from trainshed.services.code import CODE_BUCKET, find_snapshot
from trainshed.services.host_folders import check_host_input
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.services.pool_checks import check_pool
from trainshed.store.object_store import Bucket

__all__ = ["SNAPSHOT", "CheckedSpec", "check_spec"]

SNAPSHOT = "snapshot:"
_LARGEST_SECRET = 64 * 1024
_LARGEST_SPEC = 256 * 1024


@dataclass(frozen=True)
class CheckedSpec:
    """A spec that can be run, and what was found out about it."""

    spec: JobSpec
    flavor: Flavor
    code_bucket: str
    code_prefix: str
    rehearsal: bool


def check_spec(
    platform: Platform, caller: Caller, spec: JobSpec, recorded: JobRow | None = None
) -> CheckedSpec:
    """Check all that a job names. `recorded` is the job of which it is a rerun: its code and packages are known."""
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
    pool = find_pool(spec.pool, platform.settings.all_pools)
    find_account(pool, caller.user_name)
    nodes = nodes_of(pool, nodes)
    flavor = _check_flavor(spec, nodes)
    if spec.network == "open" and not platform.settings.open_network:
        raise NotAllowed(
            "This platform does not let jobs use the host's network.",
            hint="Use `network: platform`, or ask the administrator (setting open_network).",
            code="open_network_forbidden",
            where="network",
        )
    check_pool(spec, pool, open_network=platform.settings.open_network)
    for name, value in spec.secrets.items():
        if len(value.get_secret_value()) > _LARGEST_SECRET:
            raise TooLarge(f"The secret '{name}' is larger than 64 KiB.", where=f"secrets.{name}")
    inputs = {name: _check_input(platform, caller, name, url) for name, url in spec.inputs.items()}
    for name, url in spec.outputs.items():
        _check_target(platform, caller, url, f"outputs.{name}")
    if spec.checkpoints:
        _check_target(platform, caller, spec.checkpoints, "checkpoints")
    if spec.log_url:
        _check_target(platform, caller, spec.log_url, "log_url")
    bucket, prefix = ("", "") if recorded else _check_code(platform, caller, spec)
    # What is accepted for another machine stays there, whatever becomes the default later.
    where = {} if pool.engine == "local" else {"pool": pool.name}
    checked = spec.model_copy(update={"inputs": inputs, **where})
    if len(str(checked.to_public_dict())) > _LARGEST_SPEC:
        raise TooLarge("The job's description is larger than 256 KiB.", hint="Put data into an input.")
    pretend = flavor.devices > 0 and all(
        device.pretend for node in nodes for device in node.devices if device.kind == flavor.kind
    )
    if pretend:
        check_load(1 if spec.command else spec.processes or flavor.devices, spec.nodes, nodes)
    return CheckedSpec(checked, flavor, bucket, prefix, pretend)


def _check_flavor(spec: JobSpec, nodes: list[Node]) -> Flavor:
    if not nodes:
        raise Unavailable(
            "The platform does not know its machines yet.",
            hint="It looks for them right after its start; try again in a few seconds.",
            code="no_nodes",
        )
    check_device_count(spec.flavor)
    flavor = find_flavor(spec.flavor, preset_flavors(nodes))
    check_world_shape(flavor, spec.nodes, 0 if spec.command else spec.processes, spec.dialect)
    if not could_ever_fit(spec.nodes, flavor, nodes):
        raise InvalidInput(
            f"{spec.nodes} nodes of {flavor.name} ({flavor.describe()} each) are more than all machines of the "
            f"pool '{nodes[0].pool}' have.",
            hint="Use fewer nodes, a smaller flavor or another pool; `trainshed nodes` shows what is there.",
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
        folder = url.as_folder()
        try:
            platform.store.info(url.bucket, url.key)
        except NotFound:
            url = folder
        else:
            if platform.store.list(folder.bucket, folder.key, limit=1).objects:
                raise _refuse_ambiguous(str(url), where)
            return str(url)
    if platform.store.list(url.bucket, url.key, limit=1).objects:
        return str(url)
    raise NotFound(
        f"The input '{text[:200]}' does not exist.",
        hint=f"`trainshed obs ls obs://{url.bucket}/` shows what is there.",
        code="no_such_input",
        where=where,
    )


def _refuse_ambiguous(url: str, where: str) -> InvalidInput:
    return InvalidInput(
        f"The input '{url[:200]}' is an object, and also a folder with objects in it.",
        hint=f"Write '{url[:200]}/' if the folder is meant; if it is the object, copy it to a name of its own: "
        f"`trainshed obs cp {url[:200]} {url[:200]}.file`.",
        code="ambiguous_input",
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
