"""A job on top of a built environment: pip works inside, and changes only the job's own layer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.launch_plan import Environment
from trainshed.runner.environment.build import EnvironmentPaths, ensure_environment
from trainshed.runner.environment.interpreter import find_interpreter

# A runner of its own: a sandbox is prepared by a process with a single thread.
RUNNER = """
import json, os, sys, time
from pathlib import Path
from trainshed.runner.sandbox import Mount, OverlayMount, Sandbox, SandboxProcess, SandboxSpec
from trainshed.runner.shims import SHIMS_PATH, shims_folder
request = json.loads(sys.argv[1])
run = Path(request["run"])
layer = run / "layer"
for folder in (run / "root", layer / "upper", layer / "work"):
    folder.mkdir(parents=True)
    if request["uid"]:
        os.chown(folder, request["uid"], request["uid"])
sandbox = Sandbox(SandboxSpec(
    run_root=run / "root",
    mounts=(Mount(Path(request["wheels"]), "/wheels"), Mount(shims_folder(), SHIMS_PATH)),
    overlays=(OverlayMount(Path(request["lower"]), layer / "upper", layer / "work", "/opt/environment"),),
    interpreter_prefix=Path(request["prefix"]),
    outside_uid=request["uid"] or None,
))
sandbox.prepare()
sandbox.start([SandboxProcess(0, tuple(request["command"]), {"PATH": "/opt/environment/bin:/usr/bin:/bin"}, "/", run / "log")])
deadline = time.monotonic() + 60
while not sandbox.ended and time.monotonic() < deadline:
    sandbox.wait(1)
print(json.dumps([sandbox.exits[0].exit_code, (run / "log").read_text()]))
sandbox.close()
"""


def run_job(paths: EnvironmentPaths, wheels: Path, run: Path, script: str) -> tuple[int, str]:
    request = {
        "run": str(run),
        "wheels": str(wheels),
        "lower": str(paths.path_on_host),
        "prefix": str(paths.interpreter_prefix),
        "uid": 234567 if os.geteuid() == 0 else 0,
        "command": ["/bin/sh", "-c", script],
    }
    run.mkdir()
    answer = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(request)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    code, log = json.loads(answer.stdout)
    return code, log


@pytest.mark.slow
def test_pip_inside_a_job_installs_into_the_jobs_own_layer(
    tmp_path: Path, wheelhouse: Any, log: Callable[[bytes], None]
) -> None:
    wheelhouse.add_wheel("alpha")
    wheelhouse.add_wheel("beta", module="def main(): print('beta runs')\n")
    interpreter = find_interpreter()
    paths = ensure_environment(
        Environment("python", interpreter.version, ("alpha==1.0",)), tmp_path / "e", log
    )
    before = sorted(str(path) for path in paths.path_on_host.rglob("*"))
    install = "pip install --no-index --find-links /wheels --disable-pip-version-check beta"
    code, output = run_job(
        paths,
        wheelhouse.path,
        tmp_path / "first",
        f"{install} && beta-tool && pip uninstall -y alpha && python -c 'import beta, trainshed; print(beta.__file__)'",
    )
    assert code == 0, output
    assert "beta runs" in output
    assert output.splitlines()[-1].startswith("/opt/environment/lib/")
    assert sorted(str(path) for path in paths.path_on_host.rglob("*")) == before
    code, output = run_job(
        paths, wheelhouse.path, tmp_path / "second", "python -c 'import alpha' && python -c 'import beta'"
    )
    assert code == 1 and "No module named 'beta'" in output and "alpha" not in output
