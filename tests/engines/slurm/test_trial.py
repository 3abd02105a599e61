"""The test job: what it says of a machine, and what follows. On a real cluster: tests/test_slurm_accounts.py."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainshed.engines.engine import EXIT_NO_PLATFORM, EXIT_NO_PYTHON
from trainshed.engines.slurm.trial import judge_trial, read_trial, render_trial, trial_variables
from trainshed.model.pools import Pool

WELL: dict[str, Any] = {
    "host": "n1",
    "python": "3.12.1",
    "user": 1000,
    "token": True,
    "api": "",
    "obs": "",
    "skew": 1,
    "folder": "",
    "free": 80,
    "sandbox": "",
}
POOL = Pool("gpu", "slurm", "a100", python=sys.executable)


def test_a_machine_that_lacks_nothing() -> None:
    remarks = list(judge_trial(WELL, 0, POOL))
    assert {remark.level for remark in remarks} == {"ok"} and len(remarks) == 5


@pytest.mark.parametrize(
    ("fault", "code", "level", "said", "fix"),
    [
        ({"python": "3.6.8"}, EXIT_NO_PYTHON, "bad", "is Python 3.6.8", "`python` of the pool"),
        ({"token": False}, 0, "bad", "did not arrive", "engine sudoers"),
        ({"api": "timed out"}, EXIT_NO_PLATFORM, "bad", "public_url cannot be reached: timed out", "host"),
        ({"obs": "refused"}, EXIT_NO_PLATFORM, "bad", "public_obs_url cannot be reached", "public_obs_url"),
        ({"skew": -95}, 0, "warn", "95 s behind", "chrony"),
        ({"folder": "read-only"}, 0, "bad", "no place for jobs: read-only", "node_folder"),
        ({"sandbox": "bubblewrap is not installed"}, 0, "bad", "cannot be walled off", "bubblewrap"),
    ],
)
def test_each_fault_comes_with_its_fix(
    fault: dict[str, Any], code: int, level: str, said: str, fix: str
) -> None:
    found = [remark for remark in judge_trial({**WELL, **fault}, code, POOL) if remark.level != "ok"]
    assert [remark.level for remark in found] == [level]
    assert said in found[0].message and fix in found[0].fix


def test_a_machine_that_could_say_nothing() -> None:
    (remark,) = judge_trial(None, EXIT_NO_PYTHON, Pool("gpu", "slurm", python="python9"))
    assert "no python9" in remark.message
    (remark,) = judge_trial(None, 1, POOL)
    assert "code 1" in remark.message and "scontrol" in remark.fix
    assert read_trial("JobId=1 Comment=lunch") is None
    assert read_trial("Comment=trial.eyJ") is None


def test_no_sandbox_is_a_warning_where_that_was_allowed() -> None:
    remarks = judge_trial({**WELL, "sandbox": "no"}, 0, POOL, allow_unsandboxed=True)
    assert [remark.level for remark in remarks if remark.level != "ok"] == ["warn"]


def test_the_program_runs_and_tells_what_it_found(tmp_path: Path) -> None:
    # In the place of Slurm: a script named scontrol that notes the comment which it is to set.
    tool = tmp_path / "scontrol"
    tool.write_text(f'#!/bin/sh\necho "$3" > {tmp_path}/comment\n')
    tool.chmod(0o755)
    variables = trial_variables("http://127.0.0.1:9", "http://127.0.0.1:9")
    script = render_trial(POOL, "a100", variables)
    assert "#SBATCH --partition=a100" in script and "#SBATCH --no-requeue" in script
    environment = {
        **{"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n7"},
        **{"TMPDIR": str(tmp_path), "TRAINSHED_RUNNER_TOKEN": variables["TRAINSHED_RUNNER_TOKEN"]},
    }
    done = subprocess.run(
        ["/bin/sh"], input=script, env=environment, text=True, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == EXIT_NO_PLATFORM, done.stderr
    found = read_trial((tmp_path / "comment").read_text())
    assert found is not None
    assert found["host"] == "n7" and found["token"] is True and found["folder"] == ""
    assert "refused" in found["api"].lower()
    assert (tmp_path / f"trainshed-{os.geteuid()}").is_dir()
    # What it was given is no secret, and stands in the script.
    given = json.loads(base64.b64decode(variables["TRAINSHED_TRIAL"]))
    assert given["api"] == "http://127.0.0.1:9"
