"""The native dialect's launch plans, compared with golden files (UPDATE_GOLDEN=1 writes them anew)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trainshed.dialects.plan import plan_launch
from trainshed.dialects.planned_job import PlannedJob
from trainshed.model.flavor import Flavor
from trainshed.model.launch_plan import Environment, to_json
from trainshed.model.queue import Placement

GOLDEN = Path(__file__).parent / "golden"
CPU = Flavor("cpu.1", "cpu", 0, 1, 4096)
ASCEND = Flavor("ascend.2", "ascend", 2, 0, 0)
ASCEND_8 = Flavor("ascend.8", "ascend", 8, 0, 0)

CASES: dict[str, tuple[dict[str, Any], Flavor, tuple[Placement, ...]]] = {
    "boot-one-node": (
        {
            "code": "obs://code/digits/",
            "boot": "src/train.py",
            "parameters": {"epochs": 3, "lr": 0.1, "shuffle": True},
            "inputs": {"data_url": "obs://datasets/digits/", "weights": "obs://models/start.npz"},
            "outputs": {"train_url": "obs://results/run1"},
            "environment": {"OMP_NUM_THREADS": "1"},
            "secrets": {"API_KEY": "**********"},
            "log_url": "obs://results/logs",
            "time_limit": 3600,
        },
        CPU,
        (Placement("laptop", (), 1, 4096),),
    ),
    "boot-two-nodes-of-two-devices": (
        {"code": "obs://code/x/", "boot": "run.sh", "nodes": 2, "flavor": "ascend.2", "network": "none"},
        ASCEND,
        (Placement("a", (0, 1), 0, 0), Placement("b", (2, 3), 0, 0)),
    ),
    "1x8": (
        {"code": "obs://code/x/", "boot": "train.py", "flavor": "ascend.8"},
        ASCEND_8,
        (Placement("a", tuple(range(8)), 0, 0),),
    ),
    "2x8": (
        {"code": "obs://code/x/", "boot": "train.py", "nodes": 2, "flavor": "ascend.8"},
        ASCEND_8,
        (Placement("a", tuple(range(8)), 0, 0), Placement("b", tuple(range(8)), 0, 0)),
    ),
    "command": (
        {"command": "echo hello && sleep 1", "network": "open"},
        CPU,
        (Placement("laptop", (), 1, 4096),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_launch_plan(name: str) -> None:
    spec, flavor, placements = CASES[name]
    job = PlannedJob(
        id="0b0f7e9a-0000-4000-8000-000000000001",
        name="digits",
        workspace_id="w" * 32,
        spec=spec,
        flavor=flavor,
        attempt=1,
        code_bucket=".code",
        code_prefix="abc/",
        environment=Environment("python", "3.11", (), "digest"),
        rehearsal=flavor is not CPU,
        platform_variables={"TRAINSHED_URL": "http://127.0.0.1:7480", "S3_ENDPOINT": "127.0.0.1:7481"},
        credential_names=("TRAINSHED_TOKEN", "ACCESS_KEY_ID"),
    )
    plan = json.dumps([to_json(node) for node in plan_launch(job, placements)], indent=1) + "\n"
    path = GOLDEN / f"native-{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(plan, "utf-8")
    assert plan == path.read_text("utf-8")


def test_ranks_count_through_all_nodes() -> None:
    spec, flavor, placements = CASES["boot-two-nodes-of-two-devices"]
    job = PlannedJob("i", "n", "w", spec, flavor, 1, ".code", "abc/", Environment("python", "3.11"))
    ranks = [process.rank for node in plan_launch(job, placements) for process in node.processes]
    assert ranks == [0, 1, 2, 3]


def test_a_job_that_names_another_store_is_not_led_to_the_platforms() -> None:
    platform = {"TRAINSHED_URL": "x", "S3_ENDPOINT": "x", "S3_USE_HTTPS": "0", "AWS_ENDPOINT_URL": "x"}
    names = ("TRAINSHED_TOKEN", "ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID")
    for spec, left_out in (
        ({"environment": {"S3_ENDPOINT": "elsewhere"}}, {"S3_USE_HTTPS", "ACCESS_KEY_ID"}),
        ({"secrets": {"AWS_ACCESS_KEY_ID": "mine"}}, {"AWS_ENDPOINT_URL"}),
        ({}, set()),
    ):
        job = PlannedJob(
            "i",
            "n",
            "w",
            {"command": "true", **spec},
            CPU,
            1,
            ".code",
            "abc/",
            Environment("python", "3.11"),
            platform_variables=platform,
            credential_names=names,
        )
        (node,) = plan_launch(job, (Placement("laptop", (), 1, 4096),))
        given = {*node.processes[0].variables, *node.secret_names}
        assert {*platform, *names} - given == left_out
        assert node.processes[0].variables.get("S3_ENDPOINT") in ("x", "elsewhere")
