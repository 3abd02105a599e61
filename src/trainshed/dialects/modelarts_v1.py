"""ModelArts' first generation (DLS): the script gets URLs and copies its data itself, with MoXing.

A boot file is started once per device, in a folder of its own. A command, the form of custom images, is started once
per node, and its parameters are variables.
"""

from __future__ import annotations

from typing import Any

from trainshed.dialects.arguments import input_folders, name_arguments, render_value
from trainshed.dialects.frameworks import HOST_FILE, render_host_file
from trainshed.dialects.launchers import TOOLS_PATH, command_of
from trainshed.dialects.planned_job import NodeView, PlannedJob, RankView
from trainshed.dialects.preset_engine import (
    RANK_TABLE_FOLDER,
    app_url,
    ascend_variables,
    code_folder_name,
    device_folders,
    log_objects,
    pip_variables,
    rank_tables,
    s3_url,
    start_arguments,
    uses_devices,
)
from trainshed.dialects.world import World, WorldNode
from trainshed.model.host_folder import is_host_url
from trainshed.model.launch_plan import GeneratedFile

__all__ = [
    "HOME",
    "JOB_DIR",
    "RESERVED_PARAMETERS",
    "RESERVED_VARIABLES",
    "host_names",
    "plan_node",
    "resource_id",
]

HOME = "/home/work"
JOB_DIR = f"{HOME}/user-job-dir"
# They are the job's input and output.
RESERVED_PARAMETERS: frozenset[str] = frozenset({"data_url", "train_url"})
# Beginnings of the variables that the platform sets: a command's parameters must not take their place.
RESERVED_VARIABLES = ("DLS_", "BATCH_")
_DLS = TOOLS_PATH.replace("/bin", "/dls")
_LOG = "/tmp/log"


def resource_id(job: PlannedJob) -> str:
    """The short name of the job that ModelArts' logs and hosts carry, such as jobafd08896."""
    return f"job{job.id.replace('-', '')[:8]}"


def host_names(job: PlannedJob, index: int) -> tuple[str, ...]:
    """A node's host names: its instance's name in the rank table, and `node-N`."""
    stem = job.name[:40].lower().replace("_", "-").strip("-") or "job"
    return f"{resource_id(job)}-job-{stem}-{index}", f"node-{index}"


def plan_node(job: PlannedJob, world: World, node: WorldNode) -> NodeView:
    """What ModelArts v1 shows on one node."""
    spec = job.spec
    code_path = f"{JOB_DIR}/{code_folder_name(spec)}"
    urls = _urls(spec)
    common = {**_variables(job, world, node, code_path, urls), **pip_variables(spec)}
    log = f"{_LOG}/{resource_id(job)}"
    if job.is_command:
        named = [*urls.items(), *spec.get("parameters", {}).items()]
        common |= {name: render_value(value) for name, value in named}
        variables = {**common, **ascend_variables(job, world, node, 0, HOME, log)}
        ranks: tuple[RankView, ...] = (RankView(command_of(spec, node), HOME, variables),)
        workspaces: tuple[str, ...] = ()
    else:
        arguments = name_arguments([*urls.items(), *spec.get("parameters", {}).items()])
        workspaces = device_folders(world, f"{HOME}/workspace") if uses_devices(job) else ()
        ranks = tuple(
            RankView(
                start_arguments(job, local, job_dir=JOB_DIR, code_path=code_path, arguments=arguments),
                workspaces[local] if workspaces else JOB_DIR,
                {**common, **ascend_variables(job, world, node, local, HOME, log)},
            )
            for local in range(world.processes)
        )
    return NodeView(
        code_path=code_path,
        ranks=ranks,
        # Folders of the machine have no URL: they are there already.
        inputs=tuple(folder for folder in input_folders(spec, _host_input) if folder.host_path),
        files=(
            GeneratedFile(HOST_FILE, render_host_file(world)),
            *rank_tables(job, world, HOME),
            *_home_files(),
        ),
        folders=(JOB_DIR, RANK_TABLE_FOLDER, _LOG, *workspaces),
        # Commands written for custom images look for the code's files in the folder above it. A boot file's own
        # pre-start script looks for them by `find`, which must not find them twice.
        code_links=JOB_DIR if job.is_command and spec.get("code") else "",
        log_objects=log_objects(
            job, world, node, f"{resource_id(job)}-job-{job.name}-{node.index}.log", resource_id(job)
        ),
        user="work",
        uid=1101,
        home=HOME,
        # Pre-start scripts replace the vendor's packages there.
        has_system_layer=True,
    )


def _urls(spec: dict[str, Any]) -> dict[str, str]:
    """Inputs and outputs, each as the URL that the script is told."""
    urls = {
        name: _host_input(name) if is_host_url(text) else s3_url(text)
        for name, text in spec.get("inputs", {}).items()
    }
    return urls | {name: s3_url(text, folder=True) for name, text in spec.get("outputs", {}).items()}


def _host_input(name: str) -> str:
    return f"{HOME}/modelarts/inputs/{name}"


def _variables(
    job: PlannedJob, world: World, node: WorldNode, code_path: str, urls: dict[str, str]
) -> dict[str, str]:
    spec = job.spec
    identity, port = resource_id(job), world.ports.of("batch")
    app = app_url(spec, code_path)
    first_input, first_output = (
        next(iter(spec.get("inputs", {})), ""),
        next(iter(spec.get("outputs", {})), ""),
    )
    variables = {
        "JOB_ID": identity,
        "DLS_JOB_ID": identity,
        "DLS_DLKS_JOB_ID": identity,
        "DLS_TASK_INDEX": str(node.index),
        "DLS_TASK_NUMBER": str(len(world.nodes)),
        "DLS_APP_URL": app,
        "DLS_DATA_URL": urls.get("data_url", urls.get(first_input, "")),
        "DLS_TRAIN_URL": urls.get("train_url", urls.get(first_output, "")),
        "DLS_USE_DOWNLOADER": "1" if app.startswith("s3://") else "0",
        # The platform itself brings the log home.
        "DLS_USE_UPLOADER": "0",
        "DLS_UPLOAD_LOG_OBS_DIR": s3_url(spec["log_url"], folder=True) if spec.get("log_url") else "",
        "DLS_USE_DNS_TCP": "0",
        "BATCH_JOB_ID": identity,
        "BATCH_TASK_LOG_PATH": _LOG,
        "BATCH_TASK_CURRENT_INSTANCE": node.name,
        "BATCH_TASK_CURRENT_HOST_IP": node.address,
        "BATCH_CURRENT_HOST": node.address,
        "BATCH_CURRENT_PORT": str(port),
        "CACHE_HOME": "/cache",
    }
    for each in world.nodes:
        variables[f"BATCH_CUSTOM{each.index}_HOSTS"] = f"{each.address}:{port}"
    if len(world.nodes) == 1:
        variables[f"BATCH_{job.name}.0_HOSTS"] = f"{node.address}:{port}"
    return variables


def _home_files() -> tuple[GeneratedFile, ...]:
    """The programs that images of ModelArts have in the home folder, each leading to ours."""
    return (
        GeneratedFile(f"{HOME}/run_train.sh", f"#!/bin/bash\nsource {_DLS}/run_train.sh\n", 0o755),
        GeneratedFile(f"{HOME}/utils.sh", f"source {_DLS}/utils.sh\n"),
        GeneratedFile(
            f"{HOME}/modelarts-downloader.py",
            f'import runpy\n\nrunpy.run_path("{_DLS}/downloader.py", run_name="__main__")\n',
        ),
    )
