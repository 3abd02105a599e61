"""Processes of a job without a job: an environment with the path file that jobs have, and scripts in it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from trainshed.model.errors import NotFound
from trainshed.runner.environment.interpreter import find_interpreter
from trainshed.runner.shims import PATH_FILE, SHIMS_PATH, shims_folder

__all__ = ["Run", "make_environment", "runner_of"]

Run = Callable[..., subprocess.CompletedProcess[str]]


def make_environment(version: str, folder: Path) -> Path:
    """An environment with the path file that a job's environment has; its interpreter.

    Of that version, or of the tests' own where none is asked or the machine has no such.
    """
    try:
        interpreter = str(find_interpreter(version).executable) if version else sys.executable
    except NotFound:
        interpreter = sys.executable
    subprocess.run([interpreter, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "zz-trainshed-shims.pth").write_text(PATH_FILE.replace(SHIMS_PATH, str(shims_folder())))
    return folder / "bin" / "python"


def runner_of(python: Path, folder: Path) -> Run:
    """What runs the interpreter as a process of a job, in a folder that holds what `modules` names."""

    def start(
        *arguments: str, modules: dict[str, str] | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        for name, text in (modules or {}).items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text))
        return subprocess.run(
            [str(python), *arguments],
            env={
                "PATH": os.environ["PATH"],
                "TRAINSHED_JOB_ID": "j",
                "PYTHONPATH": str(folder),
                **variables,
            },
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return start
