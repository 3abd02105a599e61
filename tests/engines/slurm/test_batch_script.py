"""Batch scripts, as golden files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainshed.engines.engine import AttemptLaunch, RemoteStart, Wanted
from trainshed.engines.slurm.batch_script import job_name, parse_job_name, render_batch_script
from trainshed.model.errors import InvalidInput
from trainshed.model.flavor import Flavor
from trainshed.model.pools import Pool

GOLDEN = Path(__file__).parent / "golden"
START = RemoteStart(
    'echo "node $SLURM_NODEID" \'as it is\'\nexec "$TRAINSHED_PYTHON" -c \'print("$(id)")\'\n'
)
CASES = {
    "one_node_cpu": (
        Wanted(1, Flavor("cpu.2", "cpu", 0, 2, 8192)),
        Pool("slurm", "slurm"),
        (),
    ),
    "two_nodes_npu": (
        Wanted(2, Flavor("ascend.8", "ascend", 8, 22.5, 0), seconds=3600, grace=60),
        Pool(
            "npu",
            "slurm",
            "train",
            "lab",
            "long",
            options=("--constraint=roce", "--exclusive"),
            python="/opt/python3",
        ),
        ("n7", "n3"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_the_golden_one(name: str, tmp_path: Path) -> None:
    wanted, pool, left_out = CASES[name]
    launch = AttemptLaunch("7c9e6679-7425-40de-944b-e07fc1f90ae7", 3, (), pool=pool.name, wanted=wanted)
    script = render_batch_script(launch, pool, START, "lab1", left_out)
    assert script == (GOLDEN / f"{name}.sh").read_text("utf-8")
    # What srun is given is the start script, to the letter, in every shell.
    fake = tmp_path / "srun"
    fake.write_text('#!/bin/sh\nfor last; do :; done\nprintf %s "$last"\n')
    fake.chmod(0o755)
    for shell in ("sh", "bash"):
        done = subprocess.run(
            [shell], input=script, capture_output=True, text=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
        )
        assert done.stdout == START.script.rstrip("\n"), done.stderr


def test_a_single_machine_needs_no_step_where_slurm_gives_no_warning(tmp_path: Path) -> None:
    wanted, pool, _ = CASES["one_node_cpu"]
    launch = AttemptLaunch("7c9e6679-7425-40de-944b-e07fc1f90ae7", 3, (), pool=pool.name, wanted=wanted)
    script = render_batch_script(launch, pool, START, "lab1", is_warned=False)
    assert script == (GOLDEN / "one_node_alone.sh").read_text("utf-8")
    for shell in ("sh", "bash"):
        environment = {"PATH": "/usr/bin:/bin", "SLURM_NODEID": "0"}
        done = subprocess.run([shell], input=script, capture_output=True, text=True, env=environment)
        assert done.stdout == "node 0 as it is\n$(id)\n", done.stderr
    # Several machines are only reached by one.
    two, pool, _ = CASES["two_nodes_npu"]
    launch = AttemptLaunch("j", 1, (), pool=pool.name, wanted=two)
    assert "exec srun --nodes=2 " in render_batch_script(launch, pool, START, "lab1", is_warned=False)


def test_names_lead_back() -> None:
    name = job_name("lab-1", "7c9e6679-7425-40de", 12)
    assert parse_job_name("lab-1", name) == ("7c9e6679-7425-40de", 12)
    assert parse_job_name("lab", name) != ("7c9e6679-7425-40de", 12)
    assert parse_job_name("other", name) is None
    assert parse_job_name("lab-1", "trainshed-lab-1-x-y") is None


def test_a_start_that_would_end_its_own_text_is_refused() -> None:
    launch = AttemptLaunch("j", 1, (), wanted=Wanted(1, Flavor("cpu.1", "cpu", 0, 1, 0)))
    with pytest.raises(InvalidInput):
        render_batch_script(launch, Pool("p", "slurm"), RemoteStart("END_OF_TRAINSHED_START\nid"), "x")


@pytest.mark.parametrize(
    ("longest", "minutes"),
    [(0, 211), (1440, 211), (150, 150), (60, 120)],
    ids=["no limit", "much", "hardly enough", "too little"],
)
def test_slurm_is_told_a_longer_limit_as_far_as_the_partition_gives_it(longest: int, minutes: int) -> None:
    wanted = Wanted(1, Flavor("cpu.1", "cpu", 0, 1, 0), seconds=7200, grace=30)
    launch = AttemptLaunch("j", 1, (), wanted=wanted)
    script = render_batch_script(launch, Pool("p", "slurm"), RemoteStart("true"), "x", (), longest)
    assert f"#SBATCH --time={minutes}\n" in script
