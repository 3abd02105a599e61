"""What a job of ModelArts' first generation sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from trainshed.model.launch_plan import NodeLaunch

Plan = Callable[..., tuple[NodeLaunch, ...]]
BOOT: dict[str, Any] = {
    "dialect": "modelarts-v1",
    "code": "obs://resnet50-train/resnet50_cifar10_train/",
    "boot": "resnet50_train.py",
    "parameters": {"epoch_size": 90, "run_eval": True},
    "inputs": {"data_url": "obs://ms-dataset/cifar-10/"},
    "outputs": {"train_url": "obs://resnet50-train/output"},
    "log_url": "obs://resnet50-train/log/",
}
COMMAND: dict[str, Any] = {
    "dialect": "modelarts-v1",
    "code": "obs://paddle/demo/",
    "command": "bash /home/work/run_train.sh python /home/work/user-job-dir/run.sh",
    "parameters": {"epochs": 3},
    "inputs": {"data_url": "obs://paddle/empty/"},
}
CODE = "/home/work/user-job-dir/resnet50_cifar10_train"


@pytest.mark.parametrize(("nodes", "devices"), [(1, 1), (1, 8), (2, 8)])
def test_golden_files(plan: Plan, check_golden: Any, nodes: int, devices: int) -> None:
    check_golden(f"modelarts-v1-{nodes}x{devices}", plan(BOOT, nodes=nodes, devices=devices))


def test_golden_file_of_a_command(plan: Plan, check_golden: Any) -> None:
    check_golden("modelarts-v1-command-2x8", plan(COMMAND, nodes=2, devices=8, kind="nvidia"))


def test_every_variable_of_a_training_process(plan: Plan) -> None:
    second = plan(BOOT, nodes=2, devices=8)[1]
    variables = second.processes[3].variables
    expected = {
        "JOB_ID": "job0b0f7e9a",
        "DEVICE_ID": "3",
        "ASCEND_DEVICE_ID": "3",
        "DEVICE_NUM": "8",
        "RANK_ID": "11",
        "RANK_SIZE": "16",
        "RANK_TABLE_FILE": "/home/work/rank_table/jobstart_hccl.json",
        "RANK_TABLE_FILE_V_1_0": "/home/work/rank_table/jobstart_hccl.json",
        "MINDSPORE_HCCL_CONFIG_PATH": "/home/work/rank_table/jobstart_hccl.json",
        "HCCL_CONNECT_TIMEOUT": "1800",
        "ASCEND_PROCESS_LOG_PATH": "/tmp/log/job0b0f7e9a/ascend/process_log/rank_11",
        "HOME": "/home/work",
        "USER": "work",
        "DLS_JOB_ID": "job0b0f7e9a",
        "DLS_TASK_INDEX": "1",
        "DLS_TASK_NUMBER": "2",
        "DLS_APP_URL": "s3://resnet50-train/resnet50_cifar10_train/",
        "DLS_DATA_URL": "s3://ms-dataset/cifar-10/",
        "DLS_TRAIN_URL": "s3://resnet50-train/output/",
        "DLS_USE_DOWNLOADER": "1",
        "DLS_USE_UPLOADER": "0",
        "DLS_UPLOAD_LOG_OBS_DIR": "s3://resnet50-train/log/",
        "DLS_DLKS_JOB_ID": "job0b0f7e9a",
        "DLS_USE_DNS_TCP": "0",
        "BATCH_JOB_ID": "job0b0f7e9a",
        "BATCH_TASK_LOG_PATH": "/tmp/log",
        "BATCH_TASK_CURRENT_HOST_IP": "127.0.0.3",
        "BATCH_TASK_CURRENT_INSTANCE": "job0b0f7e9a-job-digits-1",
        "BATCH_CUSTOM0_HOSTS": "127.0.0.2:29404",
        "BATCH_CUSTOM1_HOSTS": "127.0.0.3:29404",
        "BATCH_CURRENT_HOST": "127.0.0.3",
        "BATCH_CURRENT_PORT": "29404",
        "CACHE_HOME": "/cache",
    }
    assert {name: variables.get(name) for name in expected} == expected
    assert (second.user, second.uid, second.home) == ("work", 1101, "/home/work")
    assert "BATCH_digits.0_HOSTS" not in variables
    (alone,) = plan(BOOT)
    assert alone.processes[0].variables["BATCH_digits.0_HOSTS"] == "127.0.0.2:29404"


def test_one_process_per_device_in_a_folder_of_its_own_with_urls(plan: Plan) -> None:
    (node,) = plan(BOOT, devices=8)
    assert [process.directory for process in node.processes] == [
        f"/home/work/workspace/device{number}" for number in range(8)
    ]
    assert set(node.folders) >= {process.directory for process in node.processes}
    arguments = node.processes[0].arguments
    assert arguments[arguments.index("--") + 1 :] == (
        "/opt/environment/bin/python",
        f"{CODE}/resnet50_train.py",
        "--data_url=s3://ms-dataset/cifar-10/",
        "--train_url=s3://resnet50-train/output/",
        "--epoch_size=90",
        "--run_eval=true",
    )
    # Nothing is staged or uploaded: the script copies with MoXing.
    assert node.inputs == () and node.outputs == () and node.code_path == CODE


def test_nothing_is_passed_that_the_user_did_not_name(plan: Plan) -> None:
    (node,) = plan({"dialect": "modelarts-v1", "code": "snapshot:00", "boot": "train.py"}, kind="cpu")
    arguments = node.processes[0].arguments
    assert arguments[-2:] == ("/opt/environment/bin/python", "/home/work/user-job-dir/code/train.py")
    assert node.processes[0].directory == "/home/work/user-job-dir"
    assert node.processes[0].variables["DLS_APP_URL"] == "/home/work/user-job-dir/code"
    assert node.processes[0].variables["DLS_USE_DOWNLOADER"] == "0"
    named = plan({"dialect": "modelarts-v1", "code": "snapshot:00", "code_name": "mine", "boot": "a/b.py"})
    assert named[0].code_path == "/home/work/user-job-dir/mine"
    assert named[0].processes[0].variables["DLS_APP_URL"] == "/home/work/user-job-dir/mine"


def test_a_folder_of_the_machine_has_no_url_and_is_shown_as_a_folder(plan: Plan) -> None:
    (node,) = plan({**BOOT, "inputs": {"data_url": "file:///data/shared/", "more": "obs://bucket/x/"}})
    assert [(item.name, item.host_path) for item in node.inputs] == [("data_url", "/data/shared")]
    path = "/home/work/modelarts/inputs/data_url"
    assert node.inputs[0].path == path
    assert f"--data_url={path}" in node.processes[0].arguments
    assert "--more=s3://bucket/x/" in node.processes[0].arguments


def test_both_rank_tables_are_there_and_agree(plan: Plan) -> None:
    nodes = plan(BOOT, nodes=2, devices=8)
    files = {file.path: json.loads(file.content) for file in nodes[0].files if file.path.endswith(".json")}
    instances = files["/user/config/jobstart_hccl.json"]["group_list"][0]["instance_list"]
    servers = files["/home/work/rank_table/jobstart_hccl.json"]["server_list"]
    assert [item["pod_name"] for item in instances] == [
        node.processes[0].variables["BATCH_TASK_CURRENT_INSTANCE"] for node in nodes
    ]
    flat = [device for item in instances for device in item["devices"]]
    ranked = [device for server in servers for device in server["device"]]
    assert [device["device_ip"] for device in flat] == [device["device_ip"] for device in ranked]
    assert [device["rank_id"] for device in ranked] == [str(rank) for rank in range(16)]
    # In folders of the node's own, so that a script may rewrite them.
    assert "/user/config" in nodes[0].folders


def test_a_command_runs_once_per_node_with_parameters_as_variables(plan: Plan) -> None:
    nodes = plan(COMMAND, nodes=2, devices=8, kind="nvidia")
    assert [len(node.processes) for node in nodes] == [1, 1]
    process = nodes[0].processes[0]
    assert process.arguments == ("/bin/bash", "-c", COMMAND["command"])
    assert process.variables["epochs"] == "3"
    assert process.variables["data_url"] == "s3://paddle/empty/"
    assert process.variables["DLS_DATA_URL"] == "s3://paddle/empty/"
    assert nodes[0].code_links == "/home/work/user-job-dir"
    ascend = plan(COMMAND, devices=8)[0].processes[0].variables
    assert ascend["RANK_TABLE_FILE"] == "/user/config"


def test_logs_have_the_names_that_clients_look_for(plan: Plan) -> None:
    (node,) = plan(BOOT, devices=2)
    assert [(item.stream, item.name) for item in node.log_objects] == [
        ("rank-0", "job0b0f7e9a-job-digits-0.log"),
        ("platform", "job0b0f7e9a-job-digits-0-platform.log"),
        ("rank-0", "job0b0f7e9a-proc-rank-0-device-0.txt"),
        ("rank-1", "job0b0f7e9a-proc-rank-1-device-1.txt"),
    ]
    second = plan(COMMAND, nodes=2, devices=8, kind="nvidia")[1]
    assert [(item.stream, item.name) for item in second.log_objects] == [
        ("rank-1", "job0b0f7e9a-job-digits-1.log"),
        ("platform", "job0b0f7e9a-job-digits-1-platform.log"),
    ]


@pytest.mark.parametrize(
    ("level", "glog", "ascend", "events"),
    [
        ("DEBUG", "0", "0", "1"),
        ("INFO", "0", "1", "1"),
        ("WARNING", "1", "2", "0"),
        ("ERROR", "2", "3", "0"),
        ("FATAL", "3", "3", "0"),
        ("NULL", "3", "4", "0"),
    ],
)
def test_framework_log_level(plan: Plan, level: str, glog: str, ascend: str, events: str) -> None:
    (node,) = plan({**BOOT, "framework_log_level": level, "environment": {"GLOG_log_dir": "/x"}})
    variables = node.processes[0].variables
    assert variables["GLOG_v"] == glog
    assert variables["ASCEND_GLOBAL_LOG_LEVEL"] == ascend
    assert variables["ASCEND_GLOBAL_EVENT_ENABLE"] == variables["ASCEND_SLOG_PRINT_TO_STDOUT"] == events
    assert "GLOG_v" not in plan(BOOT)[0].processes[0].variables
