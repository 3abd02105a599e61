"""The program that runs first inside a sandbox, in a bare interpreter as it is there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from trainshed.runner.sandbox import init_program

# Each of these would take milliseconds of every job's start.
SLOW = {"typing", "enum", "re", "socket", "signal", "ctypes", "json", "subprocess", "pathlib", "importlib"}


def test_it_runs_alone_and_loads_nothing_slow(tmp_path: Path) -> None:
    program = tmp_path / "init.pyc"
    program.write_bytes(init_program.compile_init())
    # A runner that is dead already: init reads no plan, and leaves. What it had loaded by then is told here.
    teller = (
        "import os, sys, marshal\n"
        "leave = os._exit\n"
        "def tell(code):\n"
        "    print(repr(sorted(sys.modules)).replace(chr(39), chr(34)), flush=True)\n"
        "    leave(code)\n"
        "os._exit = tell\n"
        "sys.argv = sys.argv[1:]\n"
        f"exec(marshal.loads(open({str(program)!r}, 'rb').read()[16:]))\n"
    )
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        done = subprocess.run(
            [os.path.realpath(sys.executable), "-I", "-S", "-c", teller, "init", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={},
            cwd="/",
            capture_output=True,
            timeout=120,
            check=True,
        )
    loaded = set(json.loads(done.stdout))
    assert not loaded & SLOW
    ours_loaded = {name for name in loaded if name.startswith("trainshed")}
    assert ours_loaded == {
        f"trainshed.runner.sandbox.inside.{name}" for name in ("children", "init", "launchers", "processes")
    }


def test_every_module_of_the_folder_is_part_of_it() -> None:
    folder = Path(init_program.__file__).parent / "inside"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    content = init_program.compile_init()
    assert all(f"trainshed.runner.sandbox.inside.{name}".encode() in content for name in names)
