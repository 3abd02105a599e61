"""How the tests of dialects plan a job and compare the plan with a golden file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.dialects.plan import plan_launch
from trainshed.dialects.planned_job import PlannedJob
from trainshed.model.flavor import Flavor
from trainshed.model.launch_plan import Environment, NodeLaunch, to_json
from trainshed.model.queue import Placement

GOLDEN = Path(__file__).parent / "golden"
Plan = Callable[..., tuple[NodeLaunch, ...]]

CPU = Flavor("cpu.1", "cpu", 0, 1, 4096)


def flavor_of(kind: str, devices: int) -> Flavor:
    """A flavor of pretend devices, or of a core."""
    return Flavor(f"{kind}.{devices}", kind, devices, 0, 0) if kind != "cpu" else CPU  # type: ignore[arg-type]


def plan_job(
    spec: dict[str, Any],
    *,
    nodes: int = 1,
    devices: int = 1,
    kind: str = "ascend",
    rehearsal: bool = True,
    packages: tuple[str, ...] = (),
) -> tuple[NodeLaunch, ...]:
    """The launch plan of a job named `digits` on so many nodes and devices."""
    flavor = flavor_of(kind, devices)
    job = PlannedJob(
        id="0b0f7e9a-0000-4000-8000-000000000001",
        name="digits",
        workspace_id="w" * 32,
        spec={**spec, "nodes": nodes, "flavor": flavor.name},
        flavor=flavor,
        attempt=1,
        code_bucket=".code",
        code_prefix="abc/",
        environment=Environment("python", "3.11", packages, "digest"),
        rehearsal=rehearsal and kind != "cpu",
        platform_variables={"TRAINSHED_URL": "http://127.0.0.1:7480", "S3_ENDPOINT": "127.0.0.1:7481"},
        credential_names=("TRAINSHED_TOKEN", "ACCESS_KEY_ID"),
    )
    slots = tuple(range(flavor.devices))
    return plan_launch(
        job,
        tuple(Placement(f"m{index}", slots, flavor.cpus, flavor.memory_mb) for index in range(nodes)),
    )


@pytest.fixture(scope="session")
def plan() -> Plan:
    """Plans a job: `plan(spec, nodes=2, devices=8, kind="ascend")`."""
    return plan_job


@pytest.fixture(scope="session")
def check_golden() -> Callable[[str, tuple[NodeLaunch, ...]], None]:
    """Compares launch plans with a golden file (UPDATE_GOLDEN=1 writes it anew)."""

    def check(name: str, plans: tuple[NodeLaunch, ...]) -> None:
        text = json.dumps([to_json(node) for node in plans], indent=1) + "\n"
        path = GOLDEN / f"{name}.json"
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")

    return check
