"""What a job of ModelArts' second generation sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from trainshed.model.launch_plan import NodeLaunch

Plan = Callable[..., tuple[NodeLaunch, ...]]
ID = "0b0f7e9a-0000-4000-8000-000000000001"
BOOT: dict[str, Any] = {
    "dialect": "modelarts-v2",
    "code": "obs://bucket/code/resnet/",
    "boot": "train.py",
    "engine": "python",
    "parameters": {"epoch_size": 5},
    "inputs": {"data_url": "obs://bucket/imagenet/", "start": "obs://bucket/models/start.ckpt"},
    "outputs": {"train_url": "obs://bucket/result/"},
    "log_url": "obs://bucket/result/",
}


@pytest.mark.parametrize(("nodes", "devices"), [(1, 1), (1, 8), (2, 8)])
def test_golden_files(plan: Plan, check_golden: Any, nodes: int, devices: int) -> None:
    check_golden(f"modelarts-v2-{nodes}x{devices}", plan(BOOT, nodes=nodes, devices=devices))


def test_every_variable(plan: Plan) -> None:
    node = plan(BOOT, nodes=2, devices=8, packages=("torch==2.5", "nvidia-nccl-cu12==2.21.5"))[1]
    variables = node.processes[1].variables
    expected = {
        "JOB_ID": f"modelarts-job-{ID}",
        "DEVICE_ID": "1",
        "ASCEND_DEVICE_ID": "1",
        "RANK_ID": "9",
        "RANK_SIZE": "16",
        "RANK_TABLE_FILE": "/home/ma-user/rank_table/jobstart_hccl.json",
        "MINDSPORE_HCCL_CONFIG_PATH": "/home/ma-user/rank_table/jobstart_hccl.json",
        "HCCL_CONNECT_TIMEOUT": "1800",
        "ASCEND_PROCESS_LOG_PATH": f"/home/ma-user/modelarts/log/modelarts-job-{ID}/ascend/process_log/rank_9",
        "HOME": "/home/ma-user",
        "USER": "ma-user",
        "WORKSPACE": "/home/ma-user/modelarts/user-job-dir/resnet",
        "MA_HOME": "/home/ma-user",
        "MA_JOB_DIR": "/home/ma-user/modelarts/user-job-dir",
        "MA_MOUNT_PATH": "/home/ma-user/modelarts",
        "MA_LOG_DIR": "/home/ma-user/modelarts/log",
        "MA_SCRIPT_INTERPRETER": "",
        "MA_CURRENT_IP": "127.0.0.3",
        "MA_CURRENT_HOST_IP": "127.0.0.3",
        "MA_NUM_GPUS": "8",
        "MA_TASK_NAME": "worker",
        "MA_NUM_HOSTS": "2",
        "MA_VJ_NAME": f"ma-job-{ID}",
        "MA_JOB_KIND": "job",
        "MA_ENGINE_VERSION": "python",
        "MA_CURRENT_INSTANCE_NAME": f"modelarts-job-{ID}-worker-1",
        "MA_APIGW_ENDPOINT": "http://127.0.0.1:7480",
        "MA_PIP_HOST": "",
        "MA_PIP_URL": "",
        "MA_DETECT_TRAIN_INJECT_CODE": "0",
        "VC_TASK_INDEX": "1",
        "VC_WORKER_NUM": "2",
        "VC_WORKER_HOSTS": f"modelarts-job-{ID}-worker-0.modelarts-job-{ID},"
        f"modelarts-job-{ID}-worker-1.modelarts-job-{ID}",
        "NCCL_VERSION": "2.21.5",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "mlx5",
        "NCCL_SOCKET_IFNAME": "lo",
        "S3_ENDPOINT": "127.0.0.1:7481",
    }
    assert {name: variables.get(name) for name in expected} == expected
    assert (node.user, node.uid) == ("ma-user", 1000)
    # Every name of VC_WORKER_HOSTS is one under which the others reach the node.
    assert variables["VC_WORKER_HOSTS"].split(",") == [peer.names[1] for peer in node.peers]


def test_inputs_and_outputs_are_local_folders(plan: Plan) -> None:
    (node,) = plan(BOOT)
    mount = "/home/ma-user/modelarts"
    assert [(item.name, item.path) for item in node.inputs] == [
        ("data_url", f"{mount}/inputs/data_url_0"),
        ("start", f"{mount}/inputs/start_1"),
    ]
    assert [(item.name, item.path) for item in node.outputs] == [
        ("train_url", f"{mount}/outputs/train_url_0")
    ]
    arguments = node.processes[0].arguments
    assert arguments[arguments.index("--") + 2 :] == (
        f"{mount}/user-job-dir/resnet/train.py",
        f"--data_url={mount}/inputs/data_url_0",
        f"--start={mount}/inputs/start_1/start.ckpt",
        f"--train_url={mount}/outputs/train_url_0",
        "--epoch_size=5",
    )
    assert node.processes[0].directory == f"{mount}/workspace/device0"
    described = json.loads(node.processes[0].variables["MA_INPUTS"])["inputs"]
    assert described[1] == {
        "name": "start",
        "parameter": {"label": "start", "value": f"{mount}/inputs/start_1/start.ckpt"},
        "data_source": {"obs": {"obs_url": "obs://bucket/models/start.ckpt"}},
    }
    assert json.loads(node.processes[0].variables["MA_OUTPUTS"])["outputs"][0]["name"] == "train_url"


def test_an_input_can_be_told_by_a_variable(plan: Plan) -> None:
    (node,) = plan({**BOOT, "access": {"data_url": "env", "train_url": "parameter"}}, kind="cpu")
    process = node.processes[0]
    assert process.variables["data_url"] == "/home/ma-user/modelarts/inputs/data_url_0"
    assert not any(argument.startswith("--data_url") for argument in process.arguments)
    assert any(argument.startswith("--train_url=") for argument in process.arguments)
    assert "train_url" not in process.variables
    assert process.directory == "/home/ma-user/modelarts/user-job-dir/resnet"


def test_a_command_finds_its_values_as_variables_and_as_arguments(plan: Plan) -> None:
    spec = {**BOOT, "boot": "", "command": 'python train.py "$@"'}
    (node,) = plan(spec, devices=8)
    process = node.processes[0]
    assert process.arguments[:4] == ("/bin/bash", "-c", 'python train.py "$@"', "modelarts")
    assert process.arguments[-1] == "--epoch_size=5"
    assert process.variables["epoch_size"] == "5"
    assert process.variables["train_url"] == "/home/ma-user/modelarts/outputs/train_url_0"
    assert process.variables["RANK_TABLE_FILE"] == "/user/config"
    assert process.directory == "/home/ma-user/modelarts/user-job-dir/resnet"


def test_log_names(plan: Plan) -> None:
    second = plan(BOOT, nodes=2, devices=8)[1]
    names = [item.name for item in second.log_objects]
    assert names[0] == f"modelarts-job-{ID}-worker-1.log"
    assert names[2] == f"modelarts-job-{ID}-proc-rank-8-device-0.txt"
    assert len(names) == 10
