"""Trainshed's own conventions: folders below /job, their paths as arguments, a few TRAINSHED_ variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainshed.dialects.store_variables import keep_not_overridden
from trainshed.model.flavor import Flavor
from trainshed.model.host_folder import is_host_url, parse_host_url
from trainshed.model.launch_plan import (
    Environment,
    InputFolder,
    Limits,
    NodeLaunch,
    OutputFolder,
    ProcessPlan,
)
from trainshed.model.names import parse_obs_url
from trainshed.model.queue import Placement

__all__ = ["CODE_PATH", "PlannedJob", "plan_launch"]

CODE_PATH = "/job/code"
ENVIRONMENT_PATH = "/opt/environment"
HOME_PATH = "/home/trainshed"
METRICS_FILE = "/job/run/metrics.jsonl"


@dataclass(frozen=True)
class PlannedJob:
    """What a dialect needs to know of a job to plan its launch. `spec` is the job's public form."""

    id: str
    name: str
    workspace_id: str
    spec: dict[str, Any]
    flavor: Flavor
    attempt: int
    code_bucket: str
    code_prefix: str
    environment: Environment
    rehearsal: bool = False
    # Variables that every process gets from the platform (endpoints), and names of secret ones.
    platform_variables: dict[str, str] = field(default_factory=dict)
    credential_names: tuple[str, ...] = ()


def plan_launch(job: PlannedJob, placements: tuple[Placement, ...]) -> tuple[NodeLaunch, ...]:
    """One launch plan per node: what is started where, with which arguments and variables."""
    spec = job.spec
    per_node = job.flavor.processes if spec.get("boot") else 1
    world = per_node * len(placements)
    inputs = tuple(_input(name, text) for name, text in spec.get("inputs", {}).items())
    outputs = tuple(
        OutputFolder(name, url.bucket, url.as_folder().key, f"/job/outputs/{name}")
        for name, url in ((name, parse_obs_url(text)) for name, text in spec.get("outputs", {}).items())
    )
    log = parse_obs_url(spec["log_url"]).as_folder() if spec.get("log_url") else None
    secrets = (*spec.get("secrets", {}), *keep_not_overridden(job.credential_names, _own_names(spec)))
    nodes = []
    for index, placement in enumerate(placements):
        common = _variables(job, index, len(placements), placement, inputs, outputs)
        processes = tuple(
            ProcessPlan(
                rank=index * per_node + local,
                local_rank=local,
                arguments=_arguments(spec, inputs, outputs),
                variables={
                    **common,
                    "RANK": str(index * per_node + local),
                    "LOCAL_RANK": str(local),
                    "WORLD_SIZE": str(world),
                    **spec.get("environment", {}),
                },
                directory=CODE_PATH,
            )
            for local in range(per_node)
        )
        nodes.append(
            NodeLaunch(
                job_id=job.id,
                job_name=job.name,
                workspace_id=job.workspace_id,
                attempt=job.attempt,
                node_index=index,
                node_count=len(placements),
                world_size=world,
                code_bucket=job.code_bucket,
                code_prefix=job.code_prefix,
                code_path=CODE_PATH,
                processes=processes,
                environment=job.environment,
                inputs=inputs,
                outputs=outputs,
                device_kind=job.flavor.kind,
                devices=placement.devices,
                rehearsal=job.rehearsal,
                network=spec.get("network", "platform"),
                limits=Limits(
                    memory_mb=placement.memory_mb,
                    cpus=placement.cpus,
                    seconds=spec.get("time_limit", 0),
                    grace=spec.get("grace", 30),
                ),
                log_bucket=log.bucket if log else "",
                log_prefix=log.key if log else "",
                secret_names=secrets,
            )
        )
    return tuple(nodes)


def _input(name: str, text: str) -> InputFolder:
    path = f"/job/inputs/{name}"
    if is_host_url(text):
        return InputFolder(name, "", "", path, host_path=parse_host_url(text))
    url = parse_obs_url(text)
    return InputFolder(name, url.bucket, url.key, path)


def _arguments(
    spec: dict[str, Any], inputs: tuple[InputFolder, ...], outputs: tuple[OutputFolder, ...]
) -> tuple[str, ...]:
    if spec.get("command"):
        return ("/bin/bash", "-c", spec["command"])
    boot = f"{CODE_PATH}/{spec['boot']}"
    program = ["/bin/bash", boot] if boot.endswith(".sh") else [f"{ENVIRONMENT_PATH}/bin/python", boot]
    folders: tuple[InputFolder | OutputFolder, ...] = (*inputs, *outputs)
    named = [(folder.name, _path_of(folder)) for folder in folders]
    named += [(name, _render(value)) for name, value in spec.get("parameters", {}).items()]
    return (*program, *(f"--{name}={value}" for name, value in named))


def _variables(
    job: PlannedJob,
    index: int,
    count: int,
    placement: Placement,
    inputs: tuple[InputFolder, ...],
    outputs: tuple[OutputFolder, ...],
) -> dict[str, str]:
    variables = {
        "HOME": HOME_PATH,
        "USER": "trainshed",
        "LANG": "C.UTF-8",
        "PATH": f"{ENVIRONMENT_PATH}/bin:/usr/local/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": ENVIRONMENT_PATH,
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": "/tmp",
        "TRAINSHED_JOB_ID": job.id,
        "TRAINSHED_JOB_NAME": job.name,
        "TRAINSHED_ATTEMPT": str(job.attempt),
        "TRAINSHED_NODE": str(index),
        "TRAINSHED_NODES": str(count),
        "TRAINSHED_DEVICE_KIND": job.flavor.kind,
        "TRAINSHED_METRICS_FILE": METRICS_FILE,
    }
    for name in keep_not_overridden(job.platform_variables, _own_names(job.spec)):
        variables[name] = job.platform_variables[name]
    if placement.cpus:
        # Libraries count the machine's cores, not the job's share: left alone they start too many threads.
        threads = placement.cpus // (job.flavor.processes if job.spec.get("boot") else 1)
        variables["OMP_NUM_THREADS"] = str(max(1, int(threads)))
    if job.rehearsal:
        variables["TRAINSHED_REHEARSAL"] = "1"
    devices = ",".join(str(device) for device in placement.devices)
    if job.flavor.kind == "nvidia":
        variables["CUDA_VISIBLE_DEVICES"] = devices
    elif job.flavor.kind == "ascend":
        variables["ASCEND_RT_VISIBLE_DEVICES"] = devices
    folders: tuple[InputFolder | OutputFolder, ...] = (*inputs, *outputs)
    for folder in folders:
        kind = "INPUT" if isinstance(folder, InputFolder) else "OUTPUT"
        variables[f"TRAINSHED_{kind}_{_upper(folder.name)}"] = _path_of(folder)
    return variables


def _own_names(spec: dict[str, Any]) -> tuple[str, ...]:
    return (*spec.get("environment", {}), *spec.get("secrets", {}))


def _path_of(folder: InputFolder | OutputFolder) -> str:
    """What the script is told: the folder, or the file itself where an input is a single object."""
    if isinstance(folder, InputFolder) and folder.key and not folder.key.endswith("/"):
        return f"{folder.path}/{folder.key.rsplit('/', 1)[-1]}"
    return folder.path


def _render(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _upper(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name).upper()
