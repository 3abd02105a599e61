"""What ModelArts' two dialects and Xihe's have in common: how a preset engine starts its processes."""

from __future__ import annotations

from typing import Any

from trainshed.dialects.launchers import TOOLS_PATH, boot_arguments
from trainshed.dialects.planned_job import PlannedJob
from trainshed.dialects.world import World, WorldNode, servers_of
from trainshed.model.launch_plan import GeneratedFile, LogObject
from trainshed.model.names import parse_obs_url
from trainshed.model.rank_table import render_b, render_c

__all__ = [
    "RANK_TABLE_FOLDER",
    "ascend_variables",
    "code_folder_name",
    "device_folders",
    "log_objects",
    "pip_variables",
    "rank_tables",
    "s3_url",
    "start_arguments",
    "uses_devices",
]

# Before the training starts, RANK_TABLE_FILE is the folder that holds the scheduler's table.
RANK_TABLE_FOLDER = "/user/config"
_TABLE = "jobstart_hccl.json"


def code_folder_name(spec: dict[str, Any]) -> str:
    """The name of the code folder, which is the last part of the code's path."""
    code = str(spec.get("code", ""))
    if spec.get("code_name"):
        return str(spec["code_name"])
    if code.startswith(("obs://", "s3://")):
        url = parse_obs_url(code)
        name = url.key.rstrip("/").rpartition("/")[2] or url.bucket
        return "code" if name in (".", "..") else name
    return "code"


def s3_url(text: str, *, folder: bool = False) -> str:
    """A URL of the store as ModelArts writes it: s3://bucket/key."""
    url = parse_obs_url(text)
    if folder:
        url = url.as_folder()
    return f"s3://{url.bucket}/{url.key}"


def uses_devices(job: PlannedJob) -> bool:
    """Whether the processes run as on Ascend: each in a folder of its own, by the rank table."""
    return job.flavor.kind == "ascend"


def device_folders(world: World, workspace: str) -> tuple[str, ...]:
    """The working folders of a node's processes, one per device."""
    return tuple(f"{workspace}/device{local}" for local in range(world.processes))


def start_arguments(
    job: PlannedJob, local: int, *, job_dir: str, code_path: str, arguments: tuple[str, ...]
) -> tuple[str, ...]:
    """The command of one process: the pre-start script first, then the boot file."""
    spec = job.spec
    boot = f"{code_path}/{spec['boot']}"
    shown = {
        "--local-rank": str(local),
        "--job-dir": job_dir,
        "--boot-file": boot,
        "--app-url": app_url(spec, code_path),
        "--log-url": s3_url(spec["log_url"], folder=True) if spec.get("log_url") else "",
    }
    return (
        "/bin/bash",
        f"{TOOLS_PATH}/start-rank",
        *(word for option, value in shown.items() if value for word in (option, value)),
        "--",
        *boot_arguments(boot),
        *arguments,
    )


def app_url(spec: dict[str, Any], code_path: str) -> str:
    """Where the code came from: its URL, or its local folder where it was uploaded with the job."""
    code = str(spec.get("code", ""))
    if code.startswith(("obs://", "s3://")):
        return s3_url(code, folder=True)
    return code_path


def rank_tables(job: PlannedJob, world: World, home: str) -> tuple[GeneratedFile, ...]:
    """The scheduler's rank table, and the one that the training processes read. Both are the job's to change."""
    if not uses_devices(job):
        return ()
    servers = servers_of(world)
    return (
        GeneratedFile(f"{RANK_TABLE_FOLDER}/{_TABLE}", render_b(servers, "job-trainjob")),
        GeneratedFile(_table_file(home), render_c(servers)),
    )


def ascend_variables(
    job: PlannedJob, world: World, node: WorldNode, local: int, home: str, log: str
) -> dict[str, str]:
    """What an Ascend process finds beside its ranks: the rank table and the folder of its process log."""
    if not uses_devices(job):
        return {}
    rank = node.index * world.devices + local
    table = _table_file(home)
    return {
        # A command starts the processes itself, by a launcher that makes the file from what is in the folder.
        "RANK_TABLE_FILE": RANK_TABLE_FOLDER if job.is_command else table,
        "RANK_TABLE_FILE_V_1_0": table,
        "MINDSPORE_HCCL_CONFIG_PATH": table,
        "HCCL_CONNECT_TIMEOUT": "1800",
        "ASCEND_PROCESS_LOG_PATH": f"{log}/ascend/process_log/rank_{rank}",
    }


def pip_variables(spec: dict[str, Any]) -> dict[str, str]:
    """Where no index can be reached, pip says so at once instead of trying again and again."""
    variables = {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if spec.get("network", "platform") != "open":
        variables["PIP_NO_INDEX"] = "1"
    return variables


def log_objects(
    job: PlannedJob, world: World, node: WorldNode, node_log: str, process_stem: str
) -> tuple[LogObject, ...]:
    """The names under which the logs are exported: one for the node, and one per process where it has several."""
    first = world.rank(node, 0)
    # What the platform itself said: the reason, where a job ends before its first line.
    platform_log = f"{node_log.removesuffix('.log')}-platform.log"
    objects = [LogObject(f"rank-{first}", node_log), LogObject("platform", platform_log)]
    if uses_devices(job) and not job.is_command:
        objects += [
            LogObject(
                f"rank-{world.rank(node, local)}",
                f"{process_stem}-proc-rank-{world.rank(node, local)}-device-{local}.txt",
            )
            for local in range(world.processes)
        ]
    return tuple(objects)


def _table_file(home: str) -> str:
    return f"{home}/rank_table/{_TABLE}"
