"""Imports point one way: who may import whom, and what must stay free of third-party packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "trainshed"

# The rooms of ARCHITECTURE.md, and which rooms each may import beside itself.
ROOMS: dict[str, set[str]] = {
    "model": set(),
    "dialects": {"model"},
    "store": {"model"},
    "hub": {"model", "store"},
    "runner": {"model", "dialects", "store"},
    "engines": {"model"},
    "db": {"model"},
    "control": {"model", "dialects", "store", "hub", "runner", "engines", "db"},
    "services": {"model", "dialects", "store", "hub", "runner", "engines", "db", "control"},
    # The object store's surface passes the data of `store.object_store` through.
    "api": {"model", "services", "store"},
    "console": {"model", "services"},
    "client": {"model"},
    "cli": {"model", "client"},
    "daemon": {
        *{
            "model",
            "dialects",
            "store",
            "hub",
            "runner",
            "engines",
            "db",
            "control",
            "services",
            "api",
            "console",
        }
    },
}
# Commands that act on this host load the daemon room, but only when they are called.
LAZY: dict[str, set[str]] = {"cli": {"daemon"}}


class Import:
    """One import of one of our modules, and whether it happens when the importing module is loaded."""

    def __init__(self, target: str, line: int, *, lazy: bool) -> None:
        self.target = target
        self.line = line
        self.lazy = lazy

    @property
    def room(self) -> str:
        parts = self.target.split(".")
        return parts[1] if len(parts) > 1 else ""


def is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def find_imports(tree: ast.Module) -> Iterator[Import]:
    """Every import of our own package; those for type checkers only count as lazy."""

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, lazy=lazy)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the room"
            if node.module == "trainshed":
                for alias in node.names:
                    yield Import(f"trainshed.{alias.name}", node.lineno, lazy=lazy)
            elif node.module:
                yield Import(node.module, node.lineno, lazy=lazy)
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            for child in node.body:
                yield from walk(child, True)
            for child in node.orelse:
                yield from walk(child, lazy)
        else:
            inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from walk(child, inside)

    for found in walk(tree, False):
        if found.target.split(".")[0] == "trainshed":
            yield found


def list_modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


def test_every_folder_is_a_room_of_the_table() -> None:
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert folders <= set(ROOMS), f"rooms without a line in the table: {sorted(folders - set(ROOMS))}"


@pytest.mark.parametrize("path", list_modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_upward_only(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    allowed = {room, *ROOMS[room]}
    for found in find_imports(ast.parse(path.read_text("utf-8"))):
        if found.room not in ROOMS:
            # `trainshed` itself: its version and the lazy names of the public surface.
            continue
        permitted = allowed | (LAZY.get(room, set()) if found.lazy else set())
        assert found.room in permitted, (
            f"{path.relative_to(SOURCE)}:{found.line}: {room} may not import {found.target}"
            + (" when it is loaded" if found.room in LAZY.get(room, set()) else "")
        )


def test_the_table_has_no_circle() -> None:
    order: list[str] = []
    while len(order) < len(ROOMS):
        ready = [room for room in ROOMS if room not in order and ROOMS[room] <= set(order)]
        assert ready, f"a circle among {sorted(set(ROOMS) - set(order))}"
        order += ready


def runner_modules() -> list[str]:
    names = []
    for path in sorted((SOURCE / "runner").rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


THIRD_PARTY = """
import sys, sysconfig
before = set(sys.modules)
import importlib
for name in {names!r}:
    importlib.import_module(name)
places = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
def is_foreign(module):
    return (getattr(module, "__file__", None) or "").startswith(places)
found = {{name.split(".")[0] for name in set(sys.modules) - before if is_foreign(sys.modules[name])}}
print(*sorted(found - {{"trainshed"}}))
"""


def test_the_runner_loads_no_third_party_package() -> None:
    # It must start on a cluster node that has Python and nothing else, in milliseconds.
    names = [
        *runner_modules(),
        "trainshed.store",
        "trainshed.store.embedded.store",
        "trainshed.store.transfer",
    ]
    assert run_python(THIRD_PARTY.format(names=names)) == ""


def test_the_supervisor_loads_no_third_party_package() -> None:
    names = [
        "trainshed.daemon.supervisor",
        "trainshed.daemon.fork_server",
        "trainshed.engines.local.fork_request",
    ]
    assert run_python(THIRD_PARTY.format(names=names)) == ""


def test_the_command_line_starts_without_heavy_packages() -> None:
    # `trainshed --help` must answer in a blink.
    loaded = run_python("import sys; import trainshed.cli.main; print(*sys.modules)").split()
    heavy = {"pydantic", "httpx", "rich", "sqlalchemy", "fastapi", "yaml", "granian", "alembic"}
    assert not heavy & set(loaded)
