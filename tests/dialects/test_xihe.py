"""What a job of Xihe sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainshed.dialects.plan import check_names
from trainshed.model.errors import InvalidInput
from trainshed.model.launch_plan import NodeLaunch

Plan = Callable[..., tuple[NodeLaunch, ...]]
JOB: dict[str, Any] = {
    "dialect": "xihe",
    "code": "obs://projects/lenet5/train/",
    "boot": "trainDir/train.py",
    "inputs": {
        "pretrain_url": "obs://models/lenet/lenet-1_1875.ckpt",
        "data_url": "obs://datasets/mnist/",
    },
    "outputs": {"output_path": "obs://projects/lenet5/output/"},
}


@pytest.mark.parametrize(("nodes", "devices"), [(1, 1), (1, 8), (2, 8)])
def test_golden_files(plan: Plan, check_golden: Any, nodes: int, devices: int) -> None:
    check_golden(f"xihe-{nodes}x{devices}", plan(JOB, nodes=nodes, devices=devices))


def passed(node: NodeLaunch) -> tuple[str, ...]:
    arguments = node.processes[0].arguments
    return arguments[arguments.index("--") + 3 :]


def test_a_file_and_a_folder_as_inputs(plan: Plan) -> None:
    assert passed(plan(JOB)[0]) == (
        "--pretrain_url=/home/ma-user/modelarts/inputs/pretrain_url_0/lenet-1_1875.ckpt",
        "--data_url=/home/ma-user/modelarts/inputs/data_url_1",
        "--output_path=/home/ma-user/modelarts/outputs/output_path_0",
    )


def test_outputs_only_where_they_are_named(plan: Plan) -> None:
    without = {name: value for name, value in JOB.items() if name != "outputs"}
    assert not any("output_path" in word or "aim_repo" in word for word in passed(plan(without)[0]))
    both = {**JOB, "outputs": {**JOB["outputs"], "aim_repo": "obs://projects/lenet5/aim/"}}
    assert passed(plan(both)[0])[-1] == "--aim_repo=/home/ma-user/modelarts/outputs/aim_repo_1"


@pytest.mark.parametrize(
    ("dialect", "label", "field"),
    [
        ("xihe", "output_path", "boot"),
        ("xihe", "aim_repo", "boot"),
        ("modelarts-v1", "data_url", "boot"),
        ("modelarts-v1", "train_url", "boot"),
        ("modelarts-v1", "DLS_TASK_INDEX", "command"),
        ("modelarts-v1", "learning-rate", "command"),
        ("modelarts-v1", "PATH", "command"),
        ("modelarts-v1", "TRAINSHED_URL", "command"),
        ("modelarts-v2", "MA_JOB_DIR", "command"),
    ],
)
def test_reserved_names_are_refused(dialect: str, label: str, field: str) -> None:
    with pytest.raises(InvalidInput) as fault:
        check_names({"dialect": dialect, field: "x.py", "parameters": {label: 1}})
    assert fault.value.code == "reserved_parameter"
    assert fault.value.where == f"parameters.{label}"
    assert fault.value.hint


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"boot": "x.py", "inputs": {"PATH": "obs://b/"}, "access": {"PATH": "env"}}, "inputs.PATH"),
        ({"boot": "x.py", "outputs": {"a-b": "obs://b/"}, "access": {"a-b": "env"}}, "outputs.a-b"),
        ({"command": "x", "inputs": {"MA_JOB_DIR": "obs://b/"}}, "inputs.MA_JOB_DIR"),
        ({"command": "x", "outputs": {"HOME": "obs://b/"}}, "outputs.HOME"),
        ({"dialect": "modelarts-v1", "command": "x", "inputs": {"DLS_X": "obs://b/"}}, "inputs.DLS_X"),
    ],
)
def test_a_path_that_is_told_by_a_variable_does_not_replace_one_of_the_platforms(
    spec: dict[str, Any], where: str
) -> None:
    with pytest.raises(InvalidInput) as fault:
        check_names({"dialect": "modelarts-v2", **spec})
    assert fault.value.where == where


def test_other_names_are_not_refused() -> None:
    check_names(
        {"dialect": "modelarts-v2", "boot": "x.py", "inputs": {"PATH": "obs://b/", "a-b": "obs://b/"}}
    )
    check_names({"dialect": "native", "command": "x", "inputs": {"a-b": "obs://b/"}})
    for dialect in ("native", "modelarts-v1", "modelarts-v2", "xihe"):
        check_names({"dialect": dialect, "boot": "x.py", "parameters": {"epochs": 1, "learning-rate": 1}})
    check_names({"dialect": "modelarts-v1", "command": "x", "parameters": {"epochs": 1}})
