"""A process that forks runners has loaded all that they load late: none of them pays for it again."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import trainshed.runner

ROOM = Path(trainshed.runner.__file__).parent
# What every job beside the platform passes through.
MODULES = ("node_run", "staging", "sandbox_plan", "closing", "broker/server", "ssh/door")


def late_imports(path: Path) -> set[str]:
    """The modules of ours that functions of a module import."""
    tree = ast.parse(path.read_text("utf-8"))
    return {
        node.module
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("trainshed.")
    }


def test_nothing_is_left_to_load_after_warming_up() -> None:
    late = sorted(set().union(*(late_imports(ROOM / f"{name}.py") for name in MODULES)))
    assert "trainshed.store.staged_tree" in late and "trainshed.runner.closing" in late
    program = "import sys; from trainshed.runner.main import warm_up; warm_up(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert not set(late) - set(done.stdout.split())
