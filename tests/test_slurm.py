"""A whole platform and a whole cluster: what a user types, the real runner on every node, nothing shared between them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm_yard

pytestmark = pytest.mark.slow

SCRIPT = """
import os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
print("rank", rank, "of", world, "devices", os.environ.get("ASCEND_RT_VISIBLE_DEVICES"), flush=True)
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place) as server:
        for _ in range(world - 1):
            print("met", server.accept()[0].recv(9).decode(), flush=True)
else:
    for _ in range(1200):
        try:
            socket.create_connection(place).send(b"%d" % rank)
            break
        except OSError:
            time.sleep(0.1)
    else:
        sys.exit("rank 0 never listened")
for step in range(3):
    print("step", step, "loss:", 1 / (step + 1), flush=True)
if "--wait=1" in sys.argv:
    time.sleep(600)
if "--wait=2" in sys.argv:
    for number in range(60):
        print("line", number, flush=True)
        time.sleep(0.1)
with open(os.environ["TRAINSHED_OUTPUT_OUT"] + f"/model-{rank}", "w") as file:
    file.write("weights")
"""
JOB = """
name: {name}
code: ./code
boot: train.py
pool: lab
nodes: 2
flavor: ascend.2
grace: 2
parameters: {{wait: {wait}}}
outputs: {{out: obs://results/{name}/}}
"""


@pytest.fixture(scope="module")
def lab(support: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A platform that hands its jobs to a cluster of three nodes."""
    home = tmp_path_factory.mktemp("lab") / "home"
    with (
        slurm_yard.open_cluster() as cluster,
        slurm_yard.start_on_cluster(support, cluster, home, slurm_yard.describe_pool("lab")) as platform,
    ):
        yield platform


def submit(lab: Any, folder: Path, name: str, wait: int = 0) -> None:
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code/train.py").write_text(SCRIPT)
    (folder / "job.yaml").write_text(JOB.format(name=name, wait=wait))
    done = lab.cli("submit", "job.yaml", cwd=folder)
    assert done.exit_code == 0, done.output


def end(lab: Any, support: Any, name: str, phase: str = "Completed") -> dict[str, Any]:
    """The job at the end that it should have; else all that is known of it."""
    shown: dict[str, Any] = {}

    def has_ended() -> bool:
        answer = lab.cli("show", name, "--json")
        if answer.exit_code == 0:
            shown.update(answer.json())
        return shown.get("phase") in ("Completed", "Failed", "Terminated")

    with contextlib.suppress(AssertionError):
        support.wait_until(has_ended, seconds=180)
    if shown.get("phase") != phase:
        told = [lab.cli(*words).output for words in (("explain", name), ("logs", name, "--all"))]
        raise AssertionError("\n".join([f"{name}: {shown.get('phase')}", *told]))
    return shown


def test_two_nodes_train_together_and_everything_comes_home(lab: Any, support: Any, tmp_path: Path) -> None:
    submit(lab, tmp_path, "together")
    end(lab, support, "together")
    for rank in range(4):
        log = lab.cli("logs", "together", "--rank", str(rank)).stdout
        assert f"rank {rank} of 4 devices" in log and "step 2" in log, log
    first = lab.cli("logs", "together", "--rank", "0").stdout
    assert sorted(line for line in first.splitlines() if line.startswith("met")) == [
        "met 1",
        "met 2",
        "met 3",
    ]
    assert "loss" in lab.cli("metrics", "together").stdout
    listed = lab.cli("obs", "ls", "-r", "obs://results/together/").stdout
    assert all(f"model-{rank}" in listed for rank in range(4))


def test_the_platforms_processes_may_be_killed_meanwhile(lab: Any, support: Any, tmp_path: Path) -> None:
    submit(lab, tmp_path, "steady", wait=2)
    support.wait_until(
        lambda: "line 3" in lab.cli("logs", "steady", "--rank", "2").stdout,
        seconds=180,
        what="the first lines",
    )
    pids = lab.pids()
    for part in ("api", "store", "control"):
        os.kill(pids[part], signal.SIGKILL)
    assert end(lab, support, "steady")["attempt"] == 1, lab.cli("show", "steady").output
    for rank in range(4):
        lines = lab.cli("logs", "steady", "--rank", str(rank)).stdout.splitlines()
        assert [line for line in lines if line.startswith("line")] == [
            f"line {number}" for number in range(60)
        ]


def test_a_stop_reaches_both_nodes(lab: Any, support: Any, tmp_path: Path) -> None:
    submit(lab, tmp_path, "endless", wait=1)
    support.wait_until(
        lambda: "step 2" in lab.cli("logs", "endless", "--rank", "3").stdout,
        seconds=180,
        what="the last rank's steps",
    )
    assert lab.cli("stop", "endless").exit_code == 0
    end(lab, support, "endless", "Terminated")
    assert "step 2" in lab.cli("logs", "endless", "--rank", "3").stdout
