"""How a launch plan is shown: short, and without losing anything."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from trainshed.cli.dry_run import describe_plan, render_plan
from trainshed.dialects.plan import plan_launch
from trainshed.dialects.planned_job import PlannedJob
from trainshed.model.flavor import Flavor
from trainshed.model.launch_plan import Environment, to_json
from trainshed.model.queue import Placement

FLAVOR = Flavor("ascend.8", "ascend", 8, 0, 0)


def plan(dialect: str) -> dict[str, Any]:
    job = PlannedJob(
        id="0",
        name="job",
        workspace_id="w",
        spec={"dialect": dialect, "boot": "train.py", "nodes": 2, "environment": {"EMPTY": ""}},
        flavor=FLAVOR,
        attempt=1,
        code_bucket=".code",
        code_prefix="x/",
        environment=Environment("python", ""),
        rehearsal=True,
    )
    launches = plan_launch(job, tuple(Placement(f"node-{n}", tuple(range(8)), 0, 0) for n in range(2)))
    return {
        "spec": {},
        "flavor": to_json(FLAVOR),
        "notes": [],
        "launch": [to_json(launch) for launch in launches],
    }


@pytest.mark.parametrize("dialect", ["native", "modelarts-v1", "modelarts-v2", "xihe", "apulis"])
def test_nothing_is_lost_and_nothing_is_said_twice(dialect: str) -> None:
    answer = plan(dialect)
    shown = describe_plan(answer)
    assert shown["world"] == "16 processes on 2 nodes"
    for launch, node in zip(answer["launch"], shown["nodes"], strict=True):
        files = shown["shared"].get("files", {}) | node.get("files", {})
        assert files == {file["path"]: file["content"] for file in launch["files"]}
        for process, found in zip(launch["processes"], node["processes"], strict=True):
            assert not found["variables"].keys() & shown["shared"]["variables"].keys()
            assert shown["shared"]["variables"] | found["variables"] == process["variables"]


def test_files_are_shown_as_they_are() -> None:
    answer = plan("native")
    text = render_plan(answer)
    assert "    /job/hostfile: |\n      job-0 slots=8\n      job-1 slots=8\n" in text
    assert yaml.safe_load(text)["shared"]["variables"]["EMPTY"] == ""
    assert len(text.splitlines()) < 600
