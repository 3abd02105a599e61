"""Real Slurm clusters for tests, an engine that submits to one, and a platform with one."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainshed.engines.engine import AttemptLaunch, NodeObservation, RemoteStart, Wanted
from trainshed.engines.slurm.commands import Commands
from trainshed.engines.slurm.engine import SlurmEngine
from trainshed.model.flavor import Flavor
from trainshed.model.home import Home
from trainshed.model.pools import Pool

REPOSITORY = Path(__file__).resolve().parents[1]
CPU = Flavor("cpu.1", "cpu", 0, 1, 0)

# Stands for a node's runner: what it does is written in the variable WORK, its report goes into the mirror.
START = """\
exec "$TRAINSHED_PYTHON" - <<'PYTHON'
import json, os, signal, sys, time
node = int(os.environ["SLURM_NODEID"])
folder = os.environ["MIRROR"] + "/node-%d" % node
job, attempt = os.environ["MIRROR"].split("/")[-2:]
report = {"job_id": job, "attempt": int(attempt.split("-")[1]), "node_index": node, "pid": os.getpid(),
          "stage": "training", "launched": True, "started_at": time.time()}
def write(**more):
    report.update(more)
    with open(folder + "/.status", "w") as file:
        json.dump(report, file)
    os.rename(folder + "/.status", folder + "/status.json")
def end(outcome, **more):
    write(stage="ended", ended_at=time.time(), ending={"outcome": outcome, **more})
    sys.exit(0)
with open(folder + "/starts", "a") as file:
    file.write(os.environ["SLURM_JOB_ID"] + " " + os.environ["SLURMD_NODENAME"] + "\\n")
with open(folder + "/variables.json", "w") as file:
    json.dump(dict(os.environ), file)
work = os.environ["WORK"]
if work.startswith("exit"):
    os._exit(int(work.split()[1]))
if work == "crash":
    # As a runner whose sandbox was ended by Slurm's own signal.
    fault = dict(cause="platform", code="sandbox", message="The sandbox's first process ended early.")
    signal.signal(signal.SIGTERM, lambda *_: end("failed", **fault))
elif work != "deaf":
    signal.signal(signal.SIGTERM, lambda *_: end("stopped", cause="stop", code="stopped"))
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
write()
if work == "done":
    end("completed")
until = time.time() + 120
while time.time() < until:
    if work != "deaf" and os.path.exists(folder + "/stop"):
        end("stopped", cause="stop", code="stopped")
    time.sleep(0.05)
PYTHON
"""


__all__ = [
    "CPU",
    "START",
    "Yard",
    "describe_pool",
    "free_ports",
    "load_cluster_module",
    "open_cluster",
    "start_on_cluster",
]


def load_cluster_module() -> Any:
    """The starter of clusters that benchmarks use as well."""
    name = "slurm_cluster"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, REPOSITORY / "benchmarks" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def free_ports(count: int) -> int:
    """The first of so many neighbouring ports that nobody listens on, where no platform looks for one.

    They are bound a moment later: each of pytest's workers has ports of its own to look at.
    """
    lane = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw") or 0) % 4
    start = os.getpid() % 50
    for number in range(50):
        port = 20800 + lane * 800 + (start + number) % 50 * 16
        sockets = []
        try:
            for number in range(count):
                sockets.append(socket.create_server(("127.0.0.1", port + number)))
        except OSError:
            continue
        finally:
            for item in sockets:
                item.close()
        return port
    raise AssertionError("no free ports")


def open_cluster(nodes: int = 3, **more: Any) -> Any:
    """A cluster of so many nodes with 8 cores, 2 gpu and 8 npu each, and room for what `lab` means; a context manager.

    Its partitions are all, urgent, short and closed.
    """
    more.setdefault("port", free_ports(nodes + 2))
    return load_cluster_module().SlurmCluster(nodes=nodes, cpus=8, lab=True, **more)


@contextlib.contextmanager
def start_on_cluster(
    support: Any,
    cluster: Any,
    home: Path,
    settings: str,
    *options: str,
    buckets: tuple[str, ...] = ("results",),
) -> Iterator[Any]:
    """A platform whose settings name pools on a cluster, with some buckets."""
    home.mkdir(mode=0o700)
    (home / "settings.toml").write_text(settings)
    try:
        conf = {"SLURM_CONF": cluster.environment["SLURM_CONF"]}
        platform = support.start_platform(home, *options, environment=conf)
        for bucket in buckets:
            assert platform.cli("obs", "mb", bucket).exit_code == 0
        yield platform
    finally:
        support.stop_platform(home)


def describe_pool(name: str, partition: str = "all", **more: str) -> str:
    """The settings of a pool whose jobs run as the platform's own user, with this Python on the nodes."""
    facts = {"engine": "slurm", "partition": partition, "run_as": "service"}
    facts["python"] = os.path.realpath(sys.executable)
    return f"[pools.{name}]\n" + "".join(f'{key} = "{value}"\n' for key, value in (facts | more).items())


class Yard:
    """An engine on a real cluster, and what a test asks of it."""

    def __init__(self, cluster: Any, path: Path, pools: tuple[Pool, ...]) -> None:
        self.cluster = cluster
        self.home = Home(path)
        self.home.jobs.mkdir(parents=True)
        self.commands = Commands(cluster.environment)
        self.work = "done"
        self.platform = path.name.replace("_", "")[-24:] or "yard"
        self._pools = pools
        self.engine = self.open()

    def open(self) -> SlurmEngine:
        """Another engine in the same home, as after a restart of the platform."""
        return SlurmEngine(
            self._pools, self._start, self.home, time.time, platform=self.platform, commands=self.commands
        )

    def _start(self, launch: AttemptLaunch) -> RemoteStart:
        mirror = self.home.jobs / launch.job_id / f"attempt-{launch.attempt}"
        return RemoteStart(START, {"MIRROR": str(mirror), "WORK": self.work, "SECRET": "hunter2"})

    def launch(self, job: str, nodes: int = 1, flavor: Flavor = CPU, **more: Any) -> AttemptLaunch:
        """An attempt that can be submitted."""
        wanted = Wanted(nodes, flavor, more.pop("seconds", 0), more.pop("grace", 1))
        return AttemptLaunch(
            job, more.pop("attempt", 1), (), pool=more.pop("pool", "lab"), wanted=wanted, **more
        )

    def submit(self, job: str, nodes: int = 1, flavor: Flavor = CPU, **more: Any) -> AttemptLaunch:
        """Submit an attempt."""
        launch = self.launch(job, nodes, flavor, **more)
        self.engine.submit(launch)
        return launch

    def look(self, launch: AttemptLaunch) -> list[NodeObservation]:
        """What the engine sees of an attempt."""
        assert launch.wanted is not None
        return self.engine.describe(launch.job_id, launch.attempt, launch.wanted.nodes)

    def until(
        self,
        launch: AttemptLaunch,
        state: str,
        seconds: float = 120.0,
        act: Callable[[], object] | None = None,
    ) -> list[NodeObservation]:
        """Look until all nodes are in a state."""
        deadline = time.monotonic() + seconds
        while True:
            if act is not None:
                act()
            seen = self.look(launch)
            if all(node.state == state for node in seen):
                return seen
            assert time.monotonic() < deadline, f"{seen}\n{self.queue()}"
            time.sleep(0.1)

    def until_reported(self, launch: AttemptLaunch) -> None:
        """Wait until the runner of each node has said something."""
        deadline = time.monotonic() + 120
        while not all(node.report for node in self.look(launch)):
            assert time.monotonic() < deadline, f"{self.look(launch)}\n{self.queue()}"
            time.sleep(0.1)

    def until_started(self, launch: AttemptLaunch) -> None:
        """Wait until the start script of the first node runs."""
        deadline = time.monotonic() + 120
        while not self.starts(launch):
            assert time.monotonic() < deadline, f"{self.look(launch)}\n{self.queue()}"
            time.sleep(0.05)

    def starts(self, launch: AttemptLaunch, node: int = 0) -> list[str]:
        """The machines on which a node of the attempt was started, one after another."""
        path = self.home.run_folder(launch.job_id, launch.attempt, node).path / "starts"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def variables(self, launch: AttemptLaunch, node: int = 0) -> dict[str, str]:
        """The environment of a node's start script."""
        path = self.home.run_folder(launch.job_id, launch.attempt, node).path / "variables.json"
        found: dict[str, str] = json.loads(path.read_text())
        return found

    def queue(self) -> str:
        """What squeue shows."""
        return str(self.cluster.call("squeue", "-t", "all", check=False).stdout)
