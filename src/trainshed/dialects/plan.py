"""The launch plan of a job: what its dialect shows on each node, with what is the same for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from trainshed.dialects import apulis, modelarts_v1, modelarts_v2, native, xihe
from trainshed.dialects.frameworks import RANK_TABLE, framework_variables
from trainshed.dialects.launchers import ENVIRONMENT_PATH, TOOLS_PATH
from trainshed.dialects.log_levels import log_level_variables
from trainshed.dialects.planned_job import NodeView, PlannedJob
from trainshed.dialects.store_variables import keep_not_overridden
from trainshed.dialects.world import World, WorldNode, build_world, servers_of
from trainshed.model.errors import InvalidInput
from trainshed.model.idleness import REPORTED_AFTER
from trainshed.model.launch_plan import CheckpointFolder, GeneratedFile, Limits, NodeLaunch, Peer, ProcessPlan
from trainshed.model.names import parse_obs_url
from trainshed.model.queue import Placement
from trainshed.model.rank_table import render_c

__all__ = ["DIALECTS", "METRICS_FILE", "check_names", "plan_launch", "processes_of"]

METRICS_FILE = "/job/run/metrics.jsonl"
CHECKPOINT_PATH = "/job/checkpoints"

_SYSTEM_VARIABLES = frozenset({"HOME", "USER", "PATH", "SHELL", "VIRTUAL_ENV", "JOB_ID", "RANK_TABLE_FILE"})
_APULIS_CREDENTIALS = frozenset({"FAMILY_TOKEN", "DLTS_JOB_TOKEN"})
# A dialect is a module with `host_names(job, index)`, `plan_node(job, world, node)` and `RESERVED_PARAMETERS`.
DIALECTS: dict[str, ModuleType] = {
    "native": native,
    "modelarts-v1": modelarts_v1,
    "modelarts-v2": modelarts_v2,
    "xihe": xihe,
    "apulis": apulis,
}


def plan_launch(job: PlannedJob, placements: tuple[Placement, ...]) -> tuple[NodeLaunch, ...]:
    """One launch plan per node: what is started where, with which arguments, variables and files."""
    dialect = DIALECTS[job.spec.get("dialect", "native")]
    names = [dialect.host_names(job, index) for index in range(len(placements))]
    world = build_world(placements, names, processes_of(job), job.flavor.devices)
    return tuple(_plan_node(job, world, node, dialect.plan_node(job, world, node)) for node in world.nodes)


def processes_of(job: PlannedJob) -> int:
    """How many processes the platform starts on each node: one for a command, else one per device."""
    if job.is_command:
        return 1
    return int(job.spec.get("processes", 0)) or job.flavor.processes


def check_names(spec: dict[str, Any]) -> None:
    """Refuse a parameter, an input or an output whose name the dialect uses itself."""
    name = spec.get("dialect", "native")
    dialect = DIALECTS[name]
    for where, label in _variable_labels(spec):
        _check_variable(where, label, getattr(dialect, "RESERVED_VARIABLES", ()))
    for label in () if spec.get("command") else spec.get("parameters", {}):
        if label in dialect.RESERVED_PARAMETERS:
            raise InvalidInput(
                f"The parameter '{label}' is one that {name} itself passes to the script.",
                hint="Name it as an input or an output instead, or choose another name.",
                code="reserved_parameter",
                where=f"parameters.{label}",
            )


def _variable_labels(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the script gets as variables: a command's parameters, and paths that are told that way."""
    access = spec.get("access", {})
    is_command = bool(spec.get("command"))
    if is_command:
        yield from (("parameters", label) for label in spec.get("parameters", {}))
    tells_all = is_command and spec.get("dialect") in ("modelarts-v1", "modelarts-v2", "xihe")
    for field in ("inputs", "outputs"):
        for label in spec.get(field, {}):
            if tells_all or access.get(label) == "env":
                yield field, label


def _check_variable(where: str, label: str, reserved: tuple[str, ...]) -> None:
    """The name of a variable must be usable, and must not be one of the platform's."""
    problem = ""
    if not label.isidentifier() or not label.isascii():
        problem = "that is not a name for one"
    elif label in _SYSTEM_VARIABLES or label.startswith(("TRAINSHED_", "LD_", *reserved)):
        problem = "the platform sets that one itself"
    if problem:
        raise InvalidInput(
            f"The script gets '{label}' as a variable, and {problem}.",
            hint="Choose another name of letters, digits and '_'.",
            code="reserved_parameter",
            where=f"{where}.{label}",
        )


def _plan_node(job: PlannedJob, world: World, node: WorldNode, view: NodeView) -> NodeLaunch:
    spec = job.spec
    common = _variables(job, world, node, view)
    log = parse_obs_url(spec["log_url"]).as_folder() if spec.get("log_url") else None
    wants_ssh = len(world.nodes) > 1 or spec.get("ssh") or spec.get("dialect") == "apulis"
    return NodeLaunch(
        job_id=job.id,
        job_name=job.name,
        workspace_id=job.workspace_id,
        attempt=job.attempt,
        node_index=node.index,
        node_count=len(world.nodes),
        world_size=world.size,
        code_bucket=job.code_bucket,
        code_prefix=job.code_prefix,
        code_path=view.code_path,
        processes=tuple(
            ProcessPlan(
                rank=world.rank(node, local),
                local_rank=local,
                arguments=rank.arguments,
                variables={
                    **common,
                    **framework_variables(job, world, node, local),
                    **rank.variables,
                    **spec.get("environment", {}),
                },
                directory=rank.directory,
            )
            for local, rank in enumerate(view.ranks)
        ),
        environment=job.environment,
        inputs=view.inputs,
        outputs=view.outputs,
        files=(*_rank_table(job, world), *view.files),
        device_kind=job.flavor.kind,
        devices=node.devices,
        rehearsal=job.rehearsal,
        network=spec.get("network", "platform"),
        limits=Limits(
            memory_mb=node.memory_mb,
            cpus=node.cpus,
            seconds=spec.get("time_limit", 0),
            grace=spec.get("grace", 30),
            warn=spec.get("warn_before", 0),
            warn_signal=spec.get("warn_signal", "USR1"),
            hang=spec.get("hang_after", 0),
            idle=min(REPORTED_AFTER, int(spec.get("idle_after", 0)) or REPORTED_AFTER),
            hold=view.hold,
        ),
        log_bucket=log.bucket if log else "",
        log_prefix=log.key if log else "",
        log_objects=view.log_objects,
        secret_names=(*spec.get("secrets", {}), *_credential_names(job)),
        peers=tuple(Peer(each.address, each.names) for each in world.nodes),
        port_base=world.ports.base,
        ssh_port=world.ports.of("ssh") if wants_ssh else 0,
        user=view.user,
        uid=view.uid,
        home=view.home,
        # The rank table lies in a folder of the node's own: some scripts rewrite it.
        folders=(*view.folders, RANK_TABLE.rpartition("/")[0])
        if job.flavor.kind == "ascend"
        else view.folders,
        kept=view.kept,
        code_links=view.code_links,
        checkpoints=_checkpoints(spec),
        has_system_layer=view.has_system_layer,
    )


def _checkpoints(spec: dict[str, Any]) -> CheckpointFolder | None:
    """The checkpoint folder of a job that may be started again, or that asks for one."""
    if spec.get("checkpoints"):
        url = parse_obs_url(spec["checkpoints"]).as_folder()
        return CheckpointFolder(CHECKPOINT_PATH, url.bucket, url.key)
    return CheckpointFolder(CHECKPOINT_PATH) if spec.get("restarts") or spec.get("preemptible") else None


def _rank_table(job: PlannedJob, world: World) -> tuple[GeneratedFile, ...]:
    if job.flavor.kind != "ascend":
        return ()
    return (GeneratedFile(RANK_TABLE, render_c(servers_of(world))),)


def _variables(job: PlannedJob, world: World, node: WorldNode, view: NodeView) -> dict[str, str]:
    variables = {
        "HOME": view.home,
        "USER": view.user,
        "LANG": "C.UTF-8",
        "PATH": f"{ENVIRONMENT_PATH}/bin:{TOOLS_PATH}:/usr/local/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": ENVIRONMENT_PATH,
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": "/tmp",
        "TRAINSHED_JOB_ID": job.id,
        "TRAINSHED_JOB_NAME": job.name,
        "TRAINSHED_ATTEMPT": str(job.attempt),
        "TRAINSHED_NODE": str(node.index),
        "TRAINSHED_NODES": str(len(world.nodes)),
        "TRAINSHED_DEVICE_KIND": job.flavor.kind,
        "TRAINSHED_METRICS_FILE": METRICS_FILE,
        "TRAINSHED_ENGINE": job.environment.engine,
        "TRAINSHED_ENGINE_ASKED": str(job.spec.get("engine", "python")),
    }
    if _checkpoints(job.spec) is not None:
        variables["TRAINSHED_CHECKPOINT"] = CHECKPOINT_PATH
    for name in keep_not_overridden(job.platform_variables, _own_names(job.spec)):
        variables[name] = job.platform_variables[name]
    if node.cpus:
        # Libraries count the machine's cores, not the job's share: left alone they start too many threads.
        variables["OMP_NUM_THREADS"] = str(max(1, int(node.cpus // world.processes)))
    if job.rehearsal:
        variables["TRAINSHED_REHEARSAL"] = "1"
        # Many pretend devices share a few cores: one thread each is the least that thrashes.
        variables["OMP_NUM_THREADS"] = "1"
    if not job.spec.get("mapping", True):
        variables["TRAINSHED_HOOKS"] = "off"
    variables |= log_level_variables(job.spec.get("framework_log_level", ""))
    devices = ",".join(str(device) for device in node.devices)
    if job.flavor.kind == "nvidia":
        variables["CUDA_VISIBLE_DEVICES"] = devices
    elif job.flavor.kind == "ascend":
        variables["ASCEND_RT_VISIBLE_DEVICES"] = devices
    return variables


def _credential_names(job: PlannedJob) -> tuple[str, ...]:
    is_apulis = job.spec.get("dialect") == "apulis"
    names = (name for name in job.credential_names if is_apulis or name not in _APULIS_CREDENTIALS)
    return keep_not_overridden(names, _own_names(job.spec))


def _own_names(spec: dict[str, Any]) -> tuple[str, ...]:
    return (*spec.get("environment", {}), *spec.get("secrets", {}))
