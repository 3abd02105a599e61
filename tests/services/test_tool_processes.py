"""The processes of hosted tools, as their server keeps them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from trainshed.durable import write_durably
from trainshed.model.launch_plan import to_json
from trainshed.model.tool import ToolPlan, ToolState
from trainshed.services.tool_processes import ToolProcesses


def wait_for_end(processes: ToolProcesses, tool: str) -> ToolState:
    """Ask until the tool has failed."""
    deadline = time.monotonic() + 60
    while (state := processes.ensure(tool)).stage != "failed":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return state


def test_a_tool_without_a_plan_was_stopped(tmp_path: Path) -> None:
    processes = ToolProcesses(tmp_path, 60)
    assert processes.ensure("a" * 24).message == "It was stopped."
    assert len(processes) == 0 and processes.open_socket("a" * 24) is None


def test_a_tool_that_cannot_begin_says_so_and_is_not_begun_without_end(tmp_path: Path) -> None:
    processes = ToolProcesses(tmp_path, 60)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "plan.json").write_text("not a plan")
    assert "unexpectedly" in wait_for_end(processes, "broken").message
    assert len(processes) == 0
    asyncio.run(processes.close())


def test_a_source_that_is_gone_is_told(tmp_path: Path) -> None:
    # The environment cannot be made: its folder is a file.
    (tmp_path / "environments").write_text("")
    plan = ToolPlan(
        "tool", "job", "space", "/logs", (), "file:///nowhere", str(tmp_path / "environments" / "x")
    )
    (tmp_path / "tool").mkdir()
    write_durably(tmp_path / "tool" / "plan.json", to_json(plan))
    processes = ToolProcesses(tmp_path, 60)
    assert wait_for_end(processes, "tool").message
    asyncio.run(processes.close())


def test_what_nobody_uses_or_was_stopped_is_ended(tmp_path: Path) -> None:
    plan = ToolPlan("idle", "job", "space", "/logs", (), "file:///nowhere", str(tmp_path / "environments"))
    for name in ("idle", "used", "stopped"):
        (tmp_path / name).mkdir()
        write_durably(tmp_path / name / "plan.json", to_json(plan))
    processes = ToolProcesses(tmp_path, 0.2)
    for name in ("idle", "used", "stopped"):
        assert processes.ensure(name).stage in ("installing", "starting")
    (tmp_path / "stopped" / "plan.json").unlink()
    with processes.use("used"):
        deadline = time.monotonic() + 60
        while len(processes) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
            processes.sweep()
        assert len(processes) == 1
        assert processes.ensure("stopped").message == "It was stopped."
    asyncio.run(processes.close())
    assert len(processes) == 0
