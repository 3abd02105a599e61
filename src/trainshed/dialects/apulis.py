"""The conventions of Apulis and DLWorkspace: workers with a kept home and /data, DLWS_ variables, host files.

One command runs on every worker. The files are those that the platform's init scripts leave: the host file, the
InfiniBand one, what a worker knows of its NPUs, and two rank tables.
"""

from __future__ import annotations

import hashlib
import re
import shlex

from trainshed.dialects.arguments import input_folders, name_arguments, output_folders, path_of
from trainshed.dialects.frameworks import HOST_FILE, render_host_file
from trainshed.dialects.launchers import boot_arguments, command_of
from trainshed.dialects.planned_job import NodeView, PlannedJob, RankView
from trainshed.dialects.world import World, WorldNode, servers_of
from trainshed.model.launch_plan import GeneratedFile, InputFolder, KeptFolder, OutputFolder
from trainshed.model.rank_table import render_a, render_b

__all__ = ["CODE_PATH", "RESERVED_PARAMETERS", "host_names", "plan_node", "unix_name"]

CODE_PATH = "/code"
DATA_PATH = "/data"
RESERVED_PARAMETERS: frozenset[str] = frozenset()
_DEVICE_TYPES = {"cpu": "", "nvidia": "nvidia_gpu_amd64", "ascend": "huawei_npu_arm64"}
_TRAIN_SCRIPT = """\
#!/bin/bash
# Starts a command once per device of this worker, each with its ranks. Usage: train.sh COMMAND [ARGUMENT...]
devices="${DLWS_NUM_GPU_PER_WORKER:-1}"
first=$(( ${DLWS_ROLE_IDX:-0} * devices ))
pids=()
for (( i = 0; i < devices; i++ )); do
    RANK_ID=$(( first + i )) DEVICE_ID=$i "$@" &
    pids+=($!)
done
trap 'kill "${pids[@]}" 2>/dev/null' TERM INT
code=0
for pid in "${pids[@]}"; do
    wait "$pid" || code=$?
done
exit "$code"
"""


def host_names(job: PlannedJob, index: int) -> tuple[str, ...]:
    """A worker's host names. The first worker also answers for the parameter server, which has no node of its own."""
    names = (f"worker-{index}", f"ib-worker-{index}")
    return (*names, "ps-0", "ib-ps-0", "master") if index == 0 else names


def unix_name(text: str) -> str:
    """A user's name as the name of a Unix account, and of a folder below /home; never that of another user."""
    name = re.sub(r"[^a-z0-9_-]", "-", text.lower()).strip("-")[:24]
    name = name if re.match(r"[a-z_]", name) else f"u{name}"
    # Two names that differ only in what an account's name cannot hold must not share a home.
    return name if name == text else f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def plan_node(job: PlannedJob, world: World, node: WorldNode) -> NodeView:
    """What the Apulis dialect shows on one worker."""
    user = unix_name(job.owner)
    home = f"/home/{user}"
    inputs = input_folders(job.spec, lambda name: f"/job/inputs/{name}")
    outputs = output_folders(job.spec, lambda name: f"/job/outputs/{name}")
    variables = _variables(job, world, node, user)
    if job.is_command:
        arguments = command_of(job.spec, node)
    else:
        folders: tuple[InputFolder | OutputFolder, ...] = (*inputs, *outputs)
        named = [(folder.name, path_of(folder)) for folder in folders]
        named += job.spec.get("parameters", {}).items()
        arguments = (*boot_arguments(f"{CODE_PATH}/{job.spec['boot']}"), *name_arguments(named))
    if outputs:
        variables["OUTPUT_PATH"] = outputs[0].path
    directory = CODE_PATH if job.code_prefix else home
    return NodeView(
        code_path=CODE_PATH,
        ranks=tuple(RankView(arguments, directory, variables) for _ in range(world.processes)),
        inputs=inputs,
        outputs=outputs,
        files=_files(job, world, node, home, variables),
        folders=("/pod/running", f"{home}/.npu/{job.id}")
        if job.flavor.kind == "ascend"
        else ("/pod/running",),
        kept=(KeptFolder("home", user, home), KeptFolder("data", "", DATA_PATH)),
        user=user,
        home=home,
        hold=int(job.spec.get("hold", 1800)),
        has_system_layer=True,
    )


def _variables(job: PlannedJob, world: World, node: WorldNode, user: str) -> dict[str, str]:
    is_distributed = len(world.nodes) > 1
    role, devices = ("worker" if is_distributed else "master"), job.flavor.devices
    framework = re.split(r"[-_=0-9.]", str(job.spec.get("engine", "python")).lower())[0]
    own = {
        "JOB_ID": job.id,
        "USER_NAME": user,
        "USER_EMAIL": f"{user}@localhost",
        "UID": "1000",
        "GID": "1000",
        "VC_NAME": job.workspace,
        "NUM_PS": "1" if is_distributed else "0",
        "NUM_WORKER": str(len(world.nodes)),
        "NUM_GPU_PER_WORKER": str(devices),
        "GPU_TYPE": _DEVICE_TYPES[job.flavor.kind],
        "ROLE_NAME": role,
        "ROLE_IDX": str(node.index),
        "IS_NPU_JOB": "true" if job.flavor.kind == "ascend" else "false",
        "LAUNCH_CMD": str(job.spec.get("command") or job.spec.get("boot", "")),
        "REST_API": job.platform_variables.get("TRAINSHED_URL", ""),
        "PREEMPTIBLE": "true" if job.spec.get("preemptible") else "false",
    }
    if is_distributed:
        own |= {"WORKER_NUM": str(len(world.nodes)), "HOST_NETWORK": "enable"}
    for each in world.nodes:
        own |= _discovery(world, each, f"SD_worker{each.index}")
    own |= _discovery(world, world.first, "SD_ps0") if is_distributed else {}
    own |= _discovery(world, node, "SD_SELF")
    # Some scripts know the names by the platform's older prefix.
    variables = {f"{prefix}_{name}": value for prefix in ("DLWS", "DLTS") for name, value in own.items()}
    variables |= {
        "POD_NAME": f"{job.id}-{role}-{node.index}",
        "POD_IP": node.address,
        "VISIBLE_IDS": ",".join(str(device) for device in node.devices),
        "aiframework": framework,
        "CODE_PATH": CODE_PATH,
        "OUTPUT_PATH": "",
        "NCCL_IB_DISABLE": "1",
    }
    if job.flavor.kind == "ascend":
        variables["NPU_IPS"] = _npu_addresses(node)
        table = f"/home/{user}/.npu/{job.id}/hccl_ms.json"
        variables |= {"RANK_TABLE_FILE": table, "MINDSPORE_HCCL_CONFIG_PATH": table}
    elif job.flavor.kind == "cpu":
        variables["NVIDIA_VISIBLE_DEVICES"] = ""
    return variables


def _discovery(world: World, node: WorldNode, stem: str) -> dict[str, str]:
    return {
        f"{stem}_IP": node.address,
        f"{stem}_SSH_PORT": str(world.ports.of("ssh")),
        f"{stem}_IB_IP": node.address,
        f"{stem}_HOST_IP": node.address,
        f"{stem}_NPU_IP_LIST": _npu_addresses(node),
    }


def _npu_addresses(node: WorldNode) -> str:
    return ",".join(f"{slot}:{address}" for slot, address in enumerate(node.device_addresses))


def _files(
    job: PlannedJob, world: World, node: WorldNode, home: str, variables: dict[str, str]
) -> tuple[GeneratedFile, ...]:
    hosts = render_host_file(world)
    # Without InfiniBand the same names lead over the ordinary network.
    fast_hosts = "".join(f"ib-{line}\n" for line in hosts.splitlines())
    given = variables | job.spec.get("environment", {})
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(given.items()))
    files = [
        GeneratedFile(HOST_FILE, hosts),
        GeneratedFile("/job/ib_config", fast_hosts),
        GeneratedFile(f"/job/ib_config-worker-{node.index}", fast_hosts),
        GeneratedFile(f"{home}/ib_config", fast_hosts),
        GeneratedFile("/pod.env", exports),
        GeneratedFile("/pod/running/SSH_PORT", f"{world.ports.of('ssh')}\n"),
    ]
    files += [
        GeneratedFile(f"/pod/running/{name}", "") for name in ("CONTAINER_READY", "ROLE_READY", "JOB_READY")
    ]
    if job.flavor.kind == "ascend":
        servers = servers_of(world)
        folder = f"{home}/.npu/{job.id}"
        info = f"ip={_npu_addresses(node)}\nhost={node.address}\n"
        files += [
            GeneratedFile(f"{folder}/npu_{node.index}.info", info),
            GeneratedFile(f"{folder}/hccl_ms.json", render_a(servers, "test")),
            GeneratedFile(f"{folder}/hccl_tf.json", render_b(servers, "test")),
            GeneratedFile(f"{folder}/train.sh", _TRAIN_SCRIPT, 0o755),
        ]
    return tuple(files)
