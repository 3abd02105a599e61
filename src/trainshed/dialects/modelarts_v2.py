"""ModelArts' second generation: the platform brings inputs to local folders and outputs back from there."""

from __future__ import annotations

import json
import re
from typing import Any

from trainshed.dialects.arguments import input_folders, name_arguments, output_folders, path_of, render_value
from trainshed.dialects.frameworks import HOST_FILE, render_host_file
from trainshed.dialects.launchers import command_of
from trainshed.dialects.planned_job import NodeView, PlannedJob, RankView
from trainshed.dialects.preset_engine import (
    RANK_TABLE_FOLDER,
    ascend_variables,
    code_folder_name,
    device_folders,
    log_objects,
    pip_variables,
    rank_tables,
    start_arguments,
    uses_devices,
)
from trainshed.dialects.world import World, WorldNode
from trainshed.model.launch_plan import GeneratedFile, InputFolder, OutputFolder

__all__ = ["HOME", "JOB_DIR", "RESERVED_PARAMETERS", "RESERVED_VARIABLES", "host_names", "plan_node"]

HOME = "/home/ma-user"
MOUNT = f"{HOME}/modelarts"
JOB_DIR = f"{MOUNT}/user-job-dir"
LOG = f"{MOUNT}/log"
RESERVED_PARAMETERS: frozenset[str] = frozenset()
RESERVED_VARIABLES = ("MA_", "VC_")


def host_names(job: PlannedJob, index: int) -> tuple[str, ...]:
    """A node's host names: its instance's name, the same below the job's domain, and `node-N`."""
    name = f"{_job(job)}-worker-{index}"
    return name, f"{name}.{_job(job)}", f"node-{index}"


def plan_node(job: PlannedJob, world: World, node: WorldNode) -> NodeView:
    """What ModelArts v2 shows on one node."""
    spec = job.spec
    code_path = f"{JOB_DIR}/{code_folder_name(spec)}"
    inputs = input_folders(spec, _locate("inputs", spec))
    outputs = output_folders(spec, _locate("outputs", spec))
    folders: tuple[InputFolder | OutputFolder, ...] = (*inputs, *outputs)
    named = [(folder.name, path_of(folder)) for folder in folders]
    as_variables = {name for name, how in spec.get("access", {}).items() if how == "env"}
    common = {
        **_variables(job, world, node, code_path),
        **pip_variables(spec),
        "MA_INPUTS": _describe("inputs", inputs, spec.get("inputs", {})),
        "MA_OUTPUTS": _describe("outputs", outputs, spec.get("outputs", {})),
        **{name: path for name, path in named if name in as_variables},
    }
    log = f"{LOG}/{_job(job)}"
    passed = [(name, path) for name, path in named if name not in as_variables]
    arguments = name_arguments([*passed, *spec.get("parameters", {}).items()])
    workspaces: tuple[str, ...] = ()
    if job.is_command:
        # A shell command takes no arguments: it finds them as variables of the same names, and all of them in "$@".
        named_values = [*passed, *spec.get("parameters", {}).items()]
        common |= {name: render_value(value) for name, value in named_values}
        command = (*command_of(spec, node), "modelarts", *arguments) if arguments else command_of(spec, node)
        directory = code_path if spec.get("code") else HOME
        variables = {**common, **ascend_variables(job, world, node, 0, HOME, log)}
        ranks: tuple[RankView, ...] = (RankView(command, directory, variables),)
    else:
        workspaces = device_folders(world, f"{MOUNT}/workspace") if uses_devices(job) else ()
        ranks = tuple(
            RankView(
                start_arguments(job, local, job_dir=JOB_DIR, code_path=code_path, arguments=arguments),
                workspaces[local] if workspaces else code_path,
                {**common, **ascend_variables(job, world, node, local, HOME, log)},
            )
            for local in range(world.processes)
        )
    return NodeView(
        code_path=code_path,
        ranks=ranks,
        inputs=inputs,
        outputs=outputs,
        files=(GeneratedFile(HOST_FILE, render_host_file(world)), *rank_tables(job, world, HOME)),
        folders=(RANK_TABLE_FOLDER, LOG, *workspaces),
        log_objects=log_objects(job, world, node, f"{_job(job)}-worker-{node.index}.log", _job(job)),
        user="ma-user",
        uid=1000,
        home=HOME,
        # Pre-start scripts replace the vendor's packages there.
        has_system_layer=True,
    )


def _job(job: PlannedJob) -> str:
    return f"modelarts-job-{job.id}"


def _locate(kind: str, spec: dict[str, Any]) -> Any:
    """Where an input or output lies: its name with its number."""
    numbers = {name: number for number, name in enumerate(spec.get(kind, {}))}
    return lambda name: f"{MOUNT}/{kind}/{name}_{numbers[name]}"


def _describe(
    kind: str, folders: tuple[InputFolder, ...] | tuple[OutputFolder, ...], urls: dict[str, str]
) -> str:
    described = [
        {
            "name": folder.name,
            "parameter": {"label": folder.name, "value": path_of(folder)},
            "data_source": {"obs": {"obs_url": urls[folder.name]}},
        }
        for folder in folders
    ]
    return json.dumps({kind: described})


def _variables(job: PlannedJob, world: World, node: WorldNode, code_path: str) -> dict[str, str]:
    is_loopback = all(each.address.startswith("127.") for each in world.nodes)
    return {
        "JOB_ID": _job(job),
        "WORKSPACE": code_path,
        "MA_HOME": HOME,
        "MA_MOUNT_PATH": MOUNT,
        "MA_JOB_DIR": JOB_DIR,
        "MA_LOG_DIR": LOG,
        "MA_SCRIPT_INTERPRETER": "",
        "MA_JOB_KIND": "job",
        "MA_VJ_NAME": f"ma-job-{job.id}",
        "MA_TASK_NAME": "worker",
        "MA_NUM_HOSTS": str(len(world.nodes)),
        "MA_NUM_GPUS": str(job.flavor.devices),
        "MA_CURRENT_IP": node.address,
        "MA_CURRENT_HOST_IP": node.address,
        "MA_CURRENT_INSTANCE_NAME": node.name,
        "MA_ENGINE_VERSION": str(job.spec.get("engine", "python")),
        "MA_APIGW_ENDPOINT": job.platform_variables.get("TRAINSHED_URL", ""),
        # Set before a script starts, where an index can be reached.
        "MA_PIP_HOST": "",
        "MA_PIP_URL": "",
        "MA_DETECT_TRAIN_INJECT_CODE": "0",
        "VC_TASK_INDEX": str(node.index),
        "VC_WORKER_NUM": str(len(world.nodes)),
        "VC_WORKER_HOSTS": ",".join(each.names[1] for each in world.nodes),
        "NCCL_VERSION": _nccl_version(job),
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "mlx5",
        "NCCL_SOCKET_IFNAME": "lo" if is_loopback else "^lo,docker",
    }


def _nccl_version(job: PlannedJob) -> str:
    """The version of NCCL among the environment's packages, or nothing where there is none."""
    for package in job.environment.packages:
        match = re.match(r"nvidia-nccl-cu\d+==(\S+)", package)
        if match:
            return match[1]
    return ""
