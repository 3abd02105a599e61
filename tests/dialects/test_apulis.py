"""The Apulis dialect: its launch plans as golden files, and every variable and file that scripts for it read."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from trainshed.dialects.apulis import unix_name
from trainshed.dialects.plan import plan_launch
from trainshed.dialects.planned_job import PlannedJob
from trainshed.model.flavor import Flavor
from trainshed.model.launch_plan import Environment, NodeLaunch, to_json
from trainshed.model.queue import Placement

GOLDEN = Path(__file__).parent / "golden"
USER = "lilei"
JOB = "0b0f7e9a-0000-4000-8000-000000000002"
CPU = Flavor("cpu.1", "cpu", 0, 1, 4096)
ASCEND_1 = Flavor("ascend.1", "ascend", 1, 0, 0)
ASCEND_8 = Flavor("ascend.8", "ascend", 8, 0, 0)
COMMAND = "sudo -E bash -c ' cd /data/code/mindspore && ./run_8p.sh &&sleep infinity'"


def plan(flavor: Flavor, nodes: int, **spec: Any) -> tuple[NodeLaunch, ...]:
    job = PlannedJob(
        id=JOB,
        name="resnet",
        workspace_id="w" * 32,
        spec={"dialect": "apulis", "command": COMMAND, "nodes": nodes, **spec},
        flavor=flavor,
        attempt=1,
        code_bucket="",
        code_prefix="",
        environment=Environment("mindspore", "3.11", (), "digest"),
        rehearsal=flavor.kind != "cpu",
        platform_variables={"TRAINSHED_URL": "http://127.0.0.1:7480"},
        credential_names=("TRAINSHED_TOKEN", "FAMILY_TOKEN", "DLTS_JOB_TOKEN"),
        owner=USER,
        workspace="vision",
    )
    return plan_launch(job, tuple(Placement("m", tuple(range(flavor.devices)), 0, 0) for _ in range(nodes)))


@pytest.mark.parametrize(
    ("name", "flavor", "nodes"), [("1x1", ASCEND_1, 1), ("1x8", ASCEND_8, 1), ("2x8", ASCEND_8, 2)]
)
def test_launch_plan(name: str, flavor: Flavor, nodes: int) -> None:
    text = json.dumps([to_json(node) for node in plan(flavor, nodes)], indent=1) + "\n"
    path = GOLDEN / f"apulis-{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_identity_and_counts() -> None:
    second = plan(ASCEND_8, 2)[1].processes[0].variables
    assert second["DLWS_JOB_ID"] == second["DLTS_JOB_ID"] == JOB
    assert second["DLWS_USER_NAME"] == USER
    assert (second["DLWS_UID"], second["DLWS_GID"], second["DLWS_VC_NAME"]) == ("1000", "1000", "vision")
    assert "@" in second["DLWS_USER_EMAIL"]
    assert (second["DLWS_NUM_PS"], second["DLWS_NUM_WORKER"], second["DLWS_WORKER_NUM"]) == ("1", "2", "2")
    assert (second["DLWS_NUM_GPU_PER_WORKER"], second["DLWS_GPU_TYPE"]) == ("8", "huawei_npu_arm64")
    assert (second["DLWS_ROLE_NAME"], second["DLWS_ROLE_IDX"], second["DLTS_ROLE_IDX"]) == (
        "worker",
        "1",
        "1",
    )
    assert second["DLWS_IS_NPU_JOB"] == "true"
    assert second["DLWS_LAUNCH_CMD"] == COMMAND
    assert second["DLWS_HOST_NETWORK"] == "enable"
    assert second["DLWS_REST_API"] == "http://127.0.0.1:7480"
    assert second["DLTS_PREEMPTIBLE"] == "false"
    assert (second["POD_NAME"], second["POD_IP"]) == (f"{JOB}-worker-1", "127.0.0.3")
    assert second["aiframework"] == "python"
    assert second["NCCL_IB_DISABLE"] == "1"
    assert second["CODE_PATH"] == "/code"
    assert "OUTPUT_PATH" in second


def test_a_regular_job_is_a_master_without_workers_around_it() -> None:
    (node,) = plan(CPU, 1)
    variables = node.processes[0].variables
    assert (variables["DLWS_NUM_PS"], variables["DLWS_NUM_WORKER"], variables["DLWS_ROLE_NAME"]) == (
        "0",
        "1",
        "master",
    )
    assert "DLWS_WORKER_NUM" not in variables
    assert "DLWS_HOST_NETWORK" not in variables
    assert variables["DLWS_IS_NPU_JOB"] == "false"
    assert variables["NVIDIA_VISIBLE_DEVICES"] == ""
    assert "RANK_TABLE_FILE" not in variables


def test_workers_discover_one_another() -> None:
    nodes = plan(ASCEND_8, 2)
    variables = nodes[1].processes[0].variables
    for prefix in ("DLWS", "DLTS"):
        assert (
            variables[f"{prefix}_SD_worker0_IP"] == variables[f"{prefix}_SD_worker0_HOST_IP"] == "127.0.0.2"
        )
        assert variables[f"{prefix}_SD_worker0_IB_IP"] == variables[f"{prefix}_SD_ps0_IP"] == "127.0.0.2"
        assert variables[f"{prefix}_SD_SELF_IP"] == variables[f"{prefix}_SD_SELF_HOST_IP"] == "127.0.0.3"
        assert variables[f"{prefix}_SD_SELF_IB_IP"] == "127.0.0.3"
        assert variables[f"{prefix}_SD_SELF_SSH_PORT"] == str(nodes[1].ssh_port)
        assert variables[f"{prefix}_SD_worker0_SSH_PORT"] == str(nodes[0].ssh_port) != "0"
    assert variables["DLWS_SD_worker1_NPU_IP_LIST"] == variables["NPU_IPS"]
    assert variables["NPU_IPS"].startswith("0:192.168.10.")
    assert variables["VISIBLE_IDS"] == "0,1,2,3,4,5,6,7"
    assert nodes[0].peers[1].names == ("worker-1", "ib-worker-1")
    assert {"ps-0", "master"} <= set(nodes[0].peers[0].names)


def test_generated_files() -> None:
    node = plan(ASCEND_8, 2, environment={"MY_NOTE": "it's"})[1]
    files = {file.path: file for file in node.files}
    assert files["/job/hostfile"].content == "worker-0 slots=8\nworker-1 slots=8\n"
    fast = "ib-worker-0 slots=8\nib-worker-1 slots=8\n"
    assert files[f"/home/{USER}/ib_config"].content == files["/job/ib_config"].content == fast
    assert files["/job/ib_config-worker-1"].content == fast
    assert "export DLWS_ROLE_IDX=1\n" in files["/pod.env"].content
    assert """export MY_NOTE='it'"'"'s'\n""" in files["/pod.env"].content
    assert files["/pod/running/SSH_PORT"].content == f"{node.ssh_port}\n"
    assert {"/pod/running/CONTAINER_READY", "/pod/running/ROLE_READY", "/pod/running/JOB_READY"} <= set(files)
    folder = f"/home/{USER}/.npu/{JOB}"
    assert files[f"{folder}/npu_1.info"].content.endswith("host=127.0.0.3\n")
    lab = json.loads(files[f"{folder}/hccl_ms.json"].content)
    assert [item["rank_id"] for item in lab["group_list"][0]["instance_list"]] == [
        str(rank) for rank in range(16)
    ]
    grouped = json.loads(files[f"{folder}/hccl_tf.json"].content)
    assert grouped["group_list"][0]["instance_count"] == "2"
    assert files[f"{folder}/train.sh"].mode == 0o755
    assert node.processes[0].variables["RANK_TABLE_FILE"] == f"{folder}/hccl_ms.json"
    assert node.processes[0].variables["MINDSPORE_HCCL_CONFIG_PATH"] == f"{folder}/hccl_ms.json"


def test_home_and_data_are_kept_and_the_credentials_are_the_dialects_own() -> None:
    (node,) = plan(CPU, 1)
    assert [(item.kind, item.path) for item in node.kept] == [("home", f"/home/{USER}"), ("data", "/data")]
    assert node.home == f"/home/{USER}"
    assert {"FAMILY_TOKEN", "DLTS_JOB_TOKEN"} <= set(node.secret_names)
    (native,) = plan(CPU, 1, dialect="native")
    assert native.secret_names == ("TRAINSHED_TOKEN",)


def test_only_the_first_node_runs_the_master_command() -> None:
    nodes = plan(CPU, 2, command="mpirun train", worker_command="sleep infinity")
    assert [node.processes[0].arguments[-1] for node in nodes] == ["mpirun train", "sleep infinity"]


@pytest.mark.parametrize("name", ["Li Lei", "li-lei", "li.lei", "王伟", "李娜", "9lives", "../x", "x" * 64])
def test_a_users_name_becomes_an_account(name: str) -> None:
    assert re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", unix_name(name))


def test_two_users_never_share_an_account() -> None:
    names = ["li-lei", "li.lei", "Li Lei", "Li-Lei", "王伟", "李娜", "u"]
    assert len({unix_name(name) for name in names}) == len(names)
