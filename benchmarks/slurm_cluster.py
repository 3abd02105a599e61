"""A real Slurm on this machine, for comparison: no systemd, nothing in /etc, gone without a trace.

    python benchmarks/slurm_cluster.py check              are its programs here?  --install fetches them (Debian, root)
    python benchmarks/slurm_cluster.py run -- sinfo       bring a cluster up, run a command in it, take it down
    python benchmarks/slurm_cluster.py up DIR             leave it up; prints the variable that its commands need
    python benchmarks/slurm_cluster.py down DIR           end exactly the processes that `up DIR` started

In Python: `with SlurmCluster(cpus=2) as cluster: cluster.call("sbatch", ...)`.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["PACKAGES", "SlurmCluster", "SlurmMissing", "install", "missing_programs"]

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel")
_START_SECONDS = 120.0
_STOP_SECONDS = 10.0

# What a small site would write.
_CONFIGURATION = """\
ClusterName=bench
SlurmctldHost={host}({controller})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/spool/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters={scheduler}
SlurmdParameters=config_overrides
ReturnToService=2
KillWait={kill_wait}
{more}
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr={addresses} Port=[{first}-{last}] CPUs={cpus} RealMemory={memory}{gres} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP{tier}
"""
# What a site with accelerators and a partition that preempts another adds; a lost node is given up soon.
_LAB = """\
GresTypes=gpu,npu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=10
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL PriorityTier=1 MaxTime=5 State=UP
PartitionName=closed Nodes=ALL PriorityTier=1 MaxTime=INFINITE State=DOWN
"""
_LAB_DEVICES = 8
# Of four settings tried with 2 slots (one short run each, on a busy machine) this gave Slurm the best rate, and a
# first line level with the best. Longer intervals make it look two to three times slower than it needs to be.
SCHEDULER = "sched_interval=1,bf_interval=1"


class SlurmMissing(Exception):
    """Slurm's programs are not installed; the message says how to get them."""


def missing_programs() -> list[str]:
    """Programs of Slurm and MUNGE that this machine does not have."""
    return [name for name in _PROGRAMS if _find(name) is None]


def install() -> None:
    """Install Slurm from the distribution's own packages (Debian or Ubuntu, as root).

    Under systemd the package's own munge service starts as well; it is idle and not the one used here.
    """
    subprocess.run(
        ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES],
        check=True,
        timeout=600,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )


class SlurmCluster:
    """One controller and N nodes, each with so many CPUs, all on loopback. A context manager."""

    def __init__(
        self,
        *,
        nodes: int = 1,
        cpus: int = 2,
        port: int = 22100,
        folder: Path | None = None,
        lab: bool = False,
        memory_mb: int = 1000,
        more: str = "",
        kill_wait: int = 3,
        controller: str = "127.0.0.1",
        addresses: str = "127.0.0.1",
        wrap: Callable[[int], list[str]] = lambda number: [],
    ) -> None:
        absent = missing_programs()
        if absent:
            raise SlurmMissing(
                f"Slurm is not installed ({', '.join(absent)}). Install it with: "
                f"apt-get install --no-install-recommends {' '.join(PACKAGES)} "
                "(or: python benchmarks/slurm_cluster.py check --install)"
            )
        self._nodes, self._cpus, self._port = nodes, cpus, port
        # With accelerators (2 gpu, 8 npu a node, all of them pretended), and with partitions that differ.
        self._lab = lab
        # Of each node. Slurm counts it, and the platform's flavors come from it; nobody checks that it is there.
        self._memory_mb = memory_mb
        # Where nodes have addresses of their own (10.0.0.[1-3]), `wrap` is what starts a program at the N-th of them.
        self._controller, self._addresses, self._wrap = controller, addresses, wrap
        # Further lines of its configuration; {folder} is the cluster's own.
        self._more = more
        # Seconds between SIGTERM and SIGKILL.
        self._kill_wait = kill_wait
        self._is_temporary = folder is None
        self.folder = (folder or Path(tempfile.mkdtemp(prefix="slurm-"))).absolute()
        # MUNGE refuses to work below a folder that others may not enter.
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self._started: list[dict[str, Any]] = []

    def __enter__(self) -> SlurmCluster:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Start MUNGE, the controller and the nodes, and wait until all nodes are idle."""
        for name in ("state", "spool"):
            (self.folder / name).mkdir(exist_ok=True)
        key = self.folder / "munge.key"
        key.unlink(missing_ok=True)
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        (self.folder / "slurm.conf").write_text(
            _CONFIGURATION.format(
                host=socket.gethostname().split(".")[0],
                port=self._port,
                first=self._port + 1,
                last=self._port + self._nodes,
                user=getpass.getuser(),
                folder=self.folder,
                nodes=self._nodes,
                cpus=self._cpus,
                memory=self._memory_mb,
                controller=self._controller,
                addresses=self._addresses,
                kill_wait=self._kill_wait,
                scheduler=SCHEDULER,
                more=(_LAB if self._lab else "") + self._more.format(folder=self.folder),
                gres=" Gres=gpu:a100:2,npu:ascend:8" if self._lab else "",
                tier=" PriorityTier=1" if self._lab else "",
            )
        )
        if self._lab:
            self._make_devices()
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.start_munge()
        self._start("slurmctld", "-D", "-i")
        for number in range(1, self._nodes + 1):
            self.start_node(number)
        self._wait("the nodes", self._is_idle)

    def start_munge(self) -> None:
        """Start MUNGE (again): without it nobody believes anybody."""
        (self.folder / "munge.sock").unlink(missing_ok=True)
        self._start(
            "munged",
            "--foreground",
            "--force",
            *(f"--{name}={self.folder}/munge.{end}" for name, end in _MUNGE_FILES.items()),
        )
        self._wait("MUNGE", lambda: (self.folder / "munge.sock").exists())

    def start_controller(self) -> None:
        """Start the controller again, with what it had saved."""
        self._start("slurmctld", "-D")

    def start_node(self, number: int) -> None:
        """Start a node's daemon (again)."""
        self._start("slurmd", "-D", "-N", f"n{number}", wrap=self._wrap(number))
        self._started[-1]["number"] = number

    def kill(self, name: str, number: int = 0) -> None:
        """Kill the controller (`slurmctld`), MUNGE (`munged`), or the daemon of a node (`slurmd`, 1 …), without warning."""
        wanted = [part for part in self._started if (part["name"], part.get("number", 0)) == (name, number)]
        part = wanted[-1]
        os.kill(part["pid"], signal.SIGKILL)
        _end(part)
        self._started.remove(part)

    def _make_devices(self) -> None:
        """Files that stand for accelerators: what they are is never looked at."""
        devices = self.folder / "dev"
        devices.mkdir(exist_ok=True)
        for index in range(_LAB_DEVICES):
            path = devices / f"davinci{index}"
            if not path.exists():
                os.symlink("/dev/null", path)
        (self.folder / "gres.conf").write_text(
            f"NodeName=n[1-{self._nodes}] Name=gpu Type=a100 File={devices}/davinci[0-1]\n"
            f"NodeName=n[1-{self._nodes}] Name=npu Type=ascend File={devices}/davinci[0-7]\n"
        )

    def down(self) -> None:
        """Cancel what runs, then end exactly the processes that were started, the last one first."""
        if any(part["name"] == "slurmctld" for part in self._started):
            self.call("scancel", "--user", getpass.getuser(), check=False)
            deadline = time.monotonic() + _STOP_SECONDS
            while self.call("squeue", "-h", check=False).stdout and time.monotonic() < deadline:
                time.sleep(0.1)
        for part in reversed(self._started):
            _end(part)
        self._started.clear()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands in this cluster."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=check
        )

    def save(self) -> None:
        """Remember what was started, so that another process can end it."""
        (self.folder / "started.json").write_text(json.dumps(self._started))

    def load(self) -> None:
        """Take over what another process has started."""
        self._started = json.loads((self.folder / "started.json").read_text())

    def _start(self, name: str, *arguments: str, wrap: Sequence[str] = ()) -> None:
        program = _find(name)
        assert program is not None
        with (self.folder / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                [*wrap, program, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append({"name": name, "pid": process.pid, "born": _born(process.pid)})
        # Ended by its number, maybe by another process: no warning about one that still runs.
        process.returncode = 0

    def _wait(self, what: str, claim: Any) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not claim():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{what} did not come up; see {self.folder}/*.log and *.out\n{self._tails()}"
                )
            time.sleep(0.05)

    def _tails(self) -> str:
        files = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-600:]}" for file in files)

    def _is_idle(self) -> bool:
        answer = self.call("sinfo", "-h", "-p", "all", "-t", "idle", "-o", "%D", check=False).stdout.strip()
        return answer == str(self._nodes)


_MUNGE_FILES = {
    "socket": "sock",
    "key-file": "key",
    "pid-file": "pid",
    "log-file": "log",
    "seed-file": "seed",
}


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _born(pid: int) -> int:
    """When the process started, in clock ticks: with the pid it names one process for good."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return -1


def _end(part: dict[str, Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if _born(part["pid"]) != part["born"]:
            return
        try:
            os.kill(part["pid"], number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        while _born(part["pid"]) == part["born"] and time.monotonic() < deadline:
            try:
                os.waitpid(part["pid"], os.WNOHANG)
            except ChildProcessError:
                pass
            time.sleep(0.02)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("check", "run", "up", "down"))
    parser.add_argument("folder", nargs="?", type=Path, help="for up and down")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 1, help="of each node")
    parser.add_argument("--port", type=int, default=22100, help="first of nodes + 1 ports, below 32768")
    parser.add_argument("--memory", type=int, default=1000, help="of each node, in MB")
    parser.add_argument("--lab", action="store_true", help="with accelerators and several partitions")
    parser.add_argument("--install", action="store_true", help="install Slurm if it is missing")
    own, command = sys.argv[1:], []
    if "--" in own:
        place = own.index("--")
        own, command = own[:place], own[place + 1 :]
    options = parser.parse_args(own)
    if options.install and missing_programs():
        install()
    if options.action == "check":
        absent = missing_programs()
        print(f"missing: {', '.join(absent)}" if absent else "Slurm is installed")
        return 1 if absent else 0
    try:
        cluster = SlurmCluster(
            nodes=options.nodes,
            cpus=options.cpus,
            port=options.port,
            folder=options.folder,
            lab=options.lab,
            memory_mb=options.memory,
        )
    except SlurmMissing as fault:
        print(fault, file=sys.stderr)
        return 1
    if options.action == "run":
        with cluster:
            return subprocess.run(command or ["sinfo"], env=cluster.environment, check=False).returncode
    if options.folder is None:
        parser.error("name the folder of the cluster")
    if options.action == "down":
        cluster.load()
        cluster.down()
        return 0
    try:
        cluster.up()
    except BaseException:
        cluster.down()
        raise
    cluster.save()
    print(f"export SLURM_CONF={cluster.folder}/slurm.conf")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
