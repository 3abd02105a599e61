"""A host that runs sandboxes in processes of their own, started by root or by an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
DRIVER = Path(__file__).parent / "driver.py"
PYTHON = os.path.realpath(sys.executable)


class Running:
    """A sandbox at work."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder

    def log(self, rank: int = 0) -> str:
        path = self.folder / "logs" / f"rank-{rank}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, line: str, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while line not in self.log():
            assert time.monotonic() < deadline, f"{line!r} never came: {self.log()!r}"
            assert self.process.poll() is None or line in self.log(), self.process.communicate()
            time.sleep(0.02)

    def finish(self) -> dict[str, Any]:
        out, errors = self.process.communicate(timeout=250)
        assert self.process.returncode == 0, errors
        assert not errors, errors
        answer: dict[str, Any] = json.loads(out)
        return answer


class Host:
    """Starts sandboxes as `user`: "root" or "ordinary"."""

    def __init__(self, user: str, base: Path) -> None:
        self.user = user
        self.base = base

    def make_folder(self, name: str) -> Path:
        """A folder of the platform's own, such as its home."""
        folder = self.base / name
        folder.mkdir(parents=True)
        self.own(folder)
        return folder

    def write(self, path: Path, content: str, mode: int = 0o644) -> Path:
        path.write_text(content)
        path.chmod(mode)
        self.own(path)
        return path

    def own(self, path: Path) -> None:
        if self.user == "ordinary" and os.geteuid() == 0:
            os.lchown(path, NOBODY, NOBODY)

    def start(self, *scripts: str, arguments: list[str] | None = None, **request: Any) -> Running:
        """Start a sandbox whose ranks run Python scripts, or one rank with the given arguments."""
        processes = [{"arguments": [PYTHON, "-B", "-c", textwrap.dedent(script)]} for script in scripts]
        if arguments is not None:
            processes = [{"arguments": arguments}]
        processes = request.pop("processes", processes)
        command = [sys.executable, "-B", str(DRIVER)]
        if self.user == "ordinary" and os.geteuid() == 0:
            command += ["--as-user", str(NOBODY)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"base": str(self.base), "processes": processes, **request}) + "\n")
        process.stdin.flush()
        return Running(process, self.base / request.get("run", "node-0"))

    def run(self, *scripts: str, **request: Any) -> tuple[dict[str, Any], str]:
        """Run to the end: the driver's answer and the log of rank 0."""
        running = self.start(*scripts, **request)
        answer = running.finish()
        return answer, running.log()


@pytest.fixture(params=["root", "ordinary"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("only root can test what root does")
    base = Path(tempfile.mkdtemp(prefix="trainshed-test-"))
    made = Host(request.param, base)
    made.own(base)
    yield made
    shutil.rmtree(base)
