"""Attempts on a real cluster: whoever ends them, their processes have their grace, and what follows is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import slurm_yard

pytestmark = pytest.mark.slow

# Takes a second to save when it is asked to end, and leaves with 0, as good scripts do.
SCRIPT = """
import os, signal, sys, time
folder = os.environ["TRAINSHED_CHECKPOINT"]
rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"]
def hear(number, frame):
    print("heard", signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM:
        time.sleep(1)
        with open(f"{folder}/saved-{rank}", "w") as file:
            file.write("weights")
        print("saved", flush=True)
        sys.exit(0)
signal.signal(signal.SIGTERM, hear)
signal.signal(signal.SIGUSR1, hear)
print("finds", sorted(os.listdir(folder)), flush=True)
if os.environ["TRAINSHED_ATTEMPT"] == "1":
    time.sleep(600)
"""


class Lab:
    """A platform, its cluster, and what a test asks of them."""

    def __init__(self, platform: Any, cluster: Any, support: Any) -> None:
        self.platform = platform
        self.cluster = cluster
        self._support = support

    def submit(self, folder: Path, name: str, **fields: Any) -> None:
        """Submit a job of two nodes."""
        (folder / "code").mkdir(exist_ok=True)
        (folder / "code/train.py").write_text(SCRIPT)
        job = {"name": name, "code": "./code", "boot": "train.py", "pool": "lab", "nodes": 2, **fields}
        if "command" in fields:
            del job["boot"]
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        done = self.platform.cli("submit", "job.yaml", cwd=folder)
        assert done.exit_code == 0, done.output

    def show(self, name: str) -> Any:
        """The job."""
        return self.platform.cli("show", name, "--json").json()

    def log(self, name: str, rank: int, attempt: int = 1) -> str:
        """A rank's log."""
        return str(self.platform.cli("logs", name, "--rank", str(rank), "--attempt", str(attempt)).stdout)

    def until_begun(self, name: str, ranks: int = 2) -> None:
        """Wait until all ranks have begun."""
        for rank in range(ranks):
            try:
                self._support.wait_until(lambda rank=rank: "finds" in self.log(name, rank), seconds=150)
            except AssertionError:
                raise AssertionError(f"rank {rank} of {name} does not begin\n{self.tell(name)}") from None

    def end(self, name: str) -> Any:
        """The job at its end."""
        ends = ("Completed", "Failed", "Terminated")
        try:
            self._support.wait_until(lambda: self.show(name)["phase"] in ends, seconds=180, what=name)
        except AssertionError as fault:
            raise AssertionError(f"{fault}\n{self.tell(name)}") from None
        return self.show(name)

    def tell(self, name: str) -> str:
        """All that is known of a job that does not do what it should."""
        said = [self.platform.cli(*words).output for words in (("explain", name), ("logs", name, "--all"))]
        return "\n".join([*said, self.cluster.call("squeue", "-a", "-t", "all", check=False).stdout])

    def attempts(self, name: str) -> list[str]:
        """How the attempts ended, by their codes."""
        with self.platform.client() as client:
            found = client.attempts(name)
        return [str((item.ending or {}).get("code") or (item.ending or {}).get("outcome")) for item in found]


@pytest.fixture(scope="module")
def lab(support: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A platform with a cluster whose jobs have ten seconds when they are preempted."""
    home = tmp_path_factory.mktemp("attempts") / "home"
    pool = slurm_yard.describe_pool("lab")
    with slurm_yard.open_cluster() as cluster:
        cluster.call("scontrol", "update", "PartitionName=all", "GraceTime=10")
        with slurm_yard.start_on_cluster(support, cluster, home, pool, buckets=()) as platform:
            yield Lab(platform, cluster, support)


def test_warnings_limits_idleness_and_cancelled_jobs(lab: Lab, tmp_path: Path) -> None:
    # Long enough for all of its processes to be ready for both signals, on a busy machine as well.
    limits = {"time_limit": 24, "warn_before": 8, "on_time_limit": "restart", "restarts": 1}
    lab.submit(tmp_path, "limited", processes=2, flavor="cpu.2", **limits)
    lab.submit(tmp_path, "cancelled", restarts=1)
    lab.submit(tmp_path, "idle", idle_after=4, idle_action="stop", restarts=1)
    lab.until_begun("cancelled")
    name = lab.show("cancelled")["id"]
    rows = lab.cluster.call("squeue", "-h", "-o", "%i %j").stdout.splitlines()
    number = next(row.split()[0] for row in rows if name in row)
    # Meant for the job's own processes, and no end of those that carry its log.
    lab.cluster.call("scancel", "--signal=USR1", number)
    lab._support.wait_until(lambda: "heard SIGUSR1" in lab.log("cancelled", 1), seconds=90)
    lab.cluster.call("scancel", number)
    assert lab.end("cancelled")["phase"] == "Completed", lab.tell("cancelled")
    assert lab.attempts("cancelled") == ["ended_from_outside", "completed"]
    for rank in (0, 1):
        assert lab.log("cancelled", rank).splitlines()[1:] == ["heard SIGUSR1", "heard SIGTERM", "saved"]
        assert lab.log("cancelled", rank, 2).startswith("finds ['saved-0', 'saved-1']")
    assert lab.end("limited")["phase"] == "Completed", lab.tell("limited")
    assert lab.attempts("limited") == ["time_limit", "completed"]
    for rank in range(4):
        assert lab.log("limited", rank).splitlines()[1:] == ["heard SIGUSR1", "heard SIGTERM", "saved"]
    ended = lab.end("idle")
    assert (ended["phase"], ended["ending"]["code"], ended["attempt"]) == ("Failed", "idle", 1)


def test_a_preempted_job_has_its_grace_and_comes_back(lab: Lab, tmp_path: Path) -> None:
    # A shell dies of SIGTERM at once; what it runs has its grace all the same.
    lab.submit(tmp_path, "yielding", command="python train.py; exit $?", preemptible=True, grace=8)
    # mpirun gets the signal as well, and would kill its processes before they have saved.
    launch = "mpirun --hostfile /job/hostfile --map-by node -np 2 python train.py"
    lab.submit(
        tmp_path, "mpi", command=f"{launch} && ssh node-1 touch /tmp/over", preemptible=True, grace=8,
        worker_command="while [ ! -e /tmp/over ]; do sleep 0.2; done",
    )  # fmt: skip
    lab.until_begun("yielding")
    both = "both of mpirun"
    lab._support.wait_until(lambda: lab.log("mpi", 0).count("finds") == 2, seconds=150, what=both)
    lab.cluster.call("sbatch", "-p", "urgent", "-N3", "--exclusive", "-o", "/dev/null", "--wrap=sleep 1")
    ended = lab.end("yielding")
    assert (ended["phase"], ended["attempt"]) == ("Completed", 2), lab.platform.cli("show", "yielding").output
    assert lab.attempts("yielding") == ["preempted", "completed"]
    for rank in (0, 1):
        assert lab.log("yielding", rank).splitlines()[1:] == ["heard SIGTERM", "saved"]
        assert lab.log("yielding", rank, 2).startswith("finds ['saved-0', 'saved-1']")
    ended = lab.end("mpi")
    assert (ended["phase"], ended["attempt"]) == ("Completed", 2), lab.platform.cli("show", "mpi").output
    assert lab.log("mpi", 0, 2).count("finds ['saved-0', 'saved-1']") == 2, lab.log("mpi", 0)
    shown = lab.platform.cli("show", "yielding").stdout
    assert "1: preempted after" in shown and "2: completed after" in shown
