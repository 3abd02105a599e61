"""The variables by which frameworks find their ranks: all of them are given at once, whatever the script uses."""

from __future__ import annotations

from trainshed.dialects.planned_job import PlannedJob
from trainshed.dialects.world import World, WorldNode

__all__ = ["HOST_FILE", "RANK_TABLE", "framework_variables", "render_host_file"]

HOST_FILE = "/job/hostfile"
RANK_TABLE = "/job/rank_table/hccl.json"


def framework_variables(job: PlannedJob, world: World, node: WorldNode, local: int) -> dict[str, str]:
    """Torch's, MindSpore's, Paddle's and MPI's variables for one process.

    A command is one process per node that will start its own: its ranks among the devices begin at its node's first.
    """
    return {
        **_torch(world, node, local),
        **_ascend(job, world, node, local),
        **_mindspore(job, world, node, local),
        **_paddle(job, world, node, local),
        **_mpi(job, world),
    }


def render_host_file(world: World) -> str:
    """The host file of mpirun and horovodrun: every node with as many slots as it has devices."""
    return "".join(f"{node.name} slots={world.devices}\n" for node in world.nodes)


def _torch(world: World, node: WorldNode, local: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": world.first.address,
        "MASTER_PORT": str(world.ports.of("master")),
        "RANK": str(world.rank(node, local)),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(world.size),
        "LOCAL_WORLD_SIZE": str(world.processes),
        "NODE_RANK": str(node.index),
        "GROUP_RANK": str(node.index),
        "NNODES": str(len(world.nodes)),
    }


def _ascend(job: PlannedJob, world: World, node: WorldNode, local: int) -> dict[str, str]:
    variables = {
        "RANK_ID": str(node.index * world.devices + local),
        "RANK_SIZE": str(world.device_count),
        "DEVICE_ID": str(local),
        "ASCEND_DEVICE_ID": str(local),
        "DEVICE_NUM": str(world.devices),
        "JOB_ID": job.id,
    }
    if job.flavor.kind == "ascend":
        variables["RANK_TABLE_FILE"] = RANK_TABLE
        variables["MINDSPORE_HCCL_CONFIG_PATH"] = RANK_TABLE
        variables["HCCL_CONNECT_TIMEOUT"] = "1800"
    return variables


def _mindspore(job: PlannedJob, world: World, node: WorldNode, local: int) -> dict[str, str]:
    host, port = world.first.address, str(world.ports.of("mindspore"))
    # Where a script starts its own processes, each of them finds its place from the ranks that the script gives it.
    variables = {"TRAINSHED_MS_SCHED": f"{host}:{port}"}
    if job.runs_on_cpu and world.size > 1 and not job.is_command:
        # On Ascend these would replace the rank table.
        variables |= {
            "MS_ROLE": "MS_WORKER",
            "MS_NODE_ID": str(world.rank(node, local)),
            "MS_WORKER_NUM": str(world.size),
            "MS_SCHED_HOST": host,
            "MS_SCHED_PORT": port,
        }
    return variables


def _paddle(job: PlannedJob, world: World, node: WorldNode, local: int) -> dict[str, str]:
    first_port = world.ports.of("process")
    endpoints = [
        f"{each.address}:{first_port + number}" for each in world.nodes for number in range(world.processes)
    ]
    rank = world.rank(node, local)
    variables = {
        "PADDLE_MASTER": f"{world.first.address}:{world.ports.of('paddle')}",
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(world.size),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_RANK_IN_NODE": str(local),
        "PADDLE_NNODES": str(len(world.nodes)),
        "PADDLE_RANK": str(node.index),
        "POD_IP": node.address,
    }
    if job.runs_on_cpu:
        variables["PADDLE_DISTRI_BACKEND"] = "gloo"
    if job.flavor.kind == "nvidia":
        variables["FLAGS_selected_gpus"] = str(local)
    elif job.flavor.kind == "ascend":
        variables["FLAGS_selected_npus"] = str(local)
    return variables


def _mpi(job: PlannedJob, world: World) -> dict[str, str]:
    patience = str(max(1, min(int(job.spec.get("grace", 30)) // 2, 10)))
    variables = {
        "TRAINSHED_HOSTFILE": HOST_FILE,
        "OMPI_MCA_orte_default_hostfile": HOST_FILE,
        # So long mpirun waits before SIGTERM, and again before SIGKILL: one second is too short for a checkpoint.
        "OMPI_MCA_odls_base_sigkill_timeout": patience,
        "PRTE_MCA_odls_base_sigkill_timeout": patience,
    }
    if world.first.address.startswith("127."):
        # OpenMPI leaves loopback out unless it is told, and looks for faster networks that are not there.
        variables |= {
            "OMPI_MCA_btl_tcp_if_include": "lo",
            "OMPI_MCA_oob_tcp_if_include": "lo",
            "PRTE_MCA_oob_tcp_if_include": "lo",
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_osc": "^ucx",
        }
    return variables
