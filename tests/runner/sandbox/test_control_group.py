"""Control groups: the real ones of this machine where it lets us, and the layout of version 2 on paper."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trainshed.runner.sandbox import control_group
from trainshed.runner.sandbox.control_group import ControlGroup


def test_a_group_limits_counts_and_goes() -> None:
    group = ControlGroup()
    if not group.folders:
        assert group.controllers == () and not group.add(os.getpid()) and group.remove()
        return
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert group.limit_memory(64 << 20) == ("memory" in group.controllers)
        assert group.limit_processes(10) == ("pids" in group.controllers)
        assert group.limit_cpu(0.5) == ("cpu" in group.controllers)
        assert group.add(process.pid)
        assert group.read_usage().processes == ("pids" in group.controllers)
        assert group.count_memory_kills() == 0
        # What is left inside when the group goes, goes with it.
        assert group.remove()
        assert process.wait(90) == -9
    finally:
        process.kill()
        process.wait()
    assert not any(folder.exists() for folder in group.folders.values())


def test_groups_of_the_living_are_not_stale() -> None:
    group = ControlGroup()
    try:
        assert not {str(folder) for folder in group.folders.values()} & set(
            control_group.remove_stale_groups()
        )
        assert all(folder.exists() for folder in group.folders.values())
    finally:
        group.remove()


def test_start_times_tell_processes_apart() -> None:
    assert control_group.read_start_time(os.getpid()) > 0
    assert control_group.read_start_time(2**22 + 1) == 0


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders laid out like a version 2 hierarchy; the kernel's part is missing."""
    monkeypatch.setattr(control_group, "ROOT", tmp_path)
    return tmp_path


def make_group(folder: Path, available: str, enabled: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.controllers").write_text(available)
    (folder / "cgroup.subtree_control").write_text(enabled)
    (folder / "cgroup.procs").write_text("")
    return folder


def test_what_is_enabled_is_used(tree: Path) -> None:
    folder = make_group(tree / "service", "cpu io memory pids", "cpu memory pids")
    assert control_group.enable_controllers(folder) == ["memory", "pids", "cpu"]
    assert control_group.read_enabled(make_group(tree / "other", "cpu", "")) == []
    assert control_group.read_enabled(tree / "absent") == []


def test_room_is_made_only_in_a_group_of_our_own(tree: Path) -> None:
    folder = make_group(tree / "system.slice", "memory", "")
    assert control_group.make_room(folder) == []
    assert not (folder / "trainshed-platform").exists()


def test_fields_and_numbers_of_strange_files(tree: Path) -> None:
    (tree / "memory.events").write_text("low 0\noom_kill 3\nstrange\nmax many\n")
    assert control_group.read_fields(tree, "memory.events") == {"low": 0, "oom_kill": 3}
    (tree / "memory.max").write_text("max")
    assert control_group.read_number(tree, "memory.max") == 0
    assert control_group.read_number(None, "x") == 0 and control_group.read_fields(None, "x") == {}
