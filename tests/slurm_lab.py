"""A platform, a cluster of three nodes, and between them a wire that a test can cut for one node."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import slurm_yard

REPOSITORY = Path(__file__).resolve().parent.parent
# By so many seconds the clock of machines in the pool `skewed` is ahead.
SKEW = 7200.0

# Counts to `steps`, a line each; goes on from its checkpoint; writes one when it is asked to stop.
# First attempts take their time (`pause`), so that what a test does to them comes before their end on a busy machine
# as well; later ones only have to bring the rest home (`later`).
SCRIPT = """
import os, signal, sys, time
given = dict(item[2:].split("=", 1) for item in sys.argv[1:] if item.startswith("--"))
rank, node = os.environ["RANK"], os.uname().nodename
folder = os.environ.get("TRAINSHED_CHECKPOINT")
place = folder and os.path.join(folder, "step-" + rank)
step = int(open(place).read()) if place and os.path.exists(place) else 0
print("starts at", step, flush=True)
def keep():
    if place:
        with open(place + ".new", "w") as file:
            file.write(str(step))
        os.rename(place + ".new", place)
pause = float(given["pause" if os.environ["TRAINSHED_ATTEMPT"] == "1" else "later"])
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
while step < int(given.get("steps", "30")):
    print("step", step, "loss:", 1 / (step + 1), flush=True)
    step += 1
    keep()
    if asked:
        print("kept", step, flush=True)
        sys.exit(0)
    time.sleep(pause)
print("done", flush=True)
with open(os.environ["TRAINSHED_OUTPUT_OUT"] + "/model-" + rank, "w") as file:
    file.write("weights")
"""
JOB = """
name: {name}
code: ./code
boot: train.py
pool: {pool}
nodes: {nodes}
flavor: {flavor}
grace: 6
restarts: {restarts}
parameters: {{steps: {steps}, pause: {pause}, later: {later}}}
outputs: {{out: obs://results/{name}/}}
"""


class Wire:
    """Carries connections to a port of this machine; can be cut for the processes of one node, or for all."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._cut: str | None = None
        self._ends: dict[socket.socket, tuple[socket.socket, int]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._is_open = True
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def cut(self, node: str) -> None:
        """Break the connections of a node (`*`: of all), and refuse new ones."""
        self._cut = node

    def mend(self) -> None:
        """Let everybody through again."""
        self._cut = None

    def close(self) -> None:
        """End it."""
        self._is_open = False
        self._thread.join(5)
        for end in [self._listener, *self._ends]:
            end.close()
        self._selector.close()

    def _carry(self) -> None:
        while self._is_open:
            for key, _ in self._selector.select(0.1):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._move(key.fileobj)  # type: ignore[arg-type]
            if self._cut is not None:
                for end, (_, port) in list(self._ends.items()):
                    if self._is_cut(port):
                        self._drop(end)

    def _accept(self) -> None:
        client, (_, port) = self._listener.accept()
        if self._cut is not None and self._is_cut(port):
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._target), 5)
        except OSError:
            client.close()
            return
        for end, other in ((client, server), (server, client)):
            self._ends[end] = (other, port)
            self._selector.register(end, selectors.EVENT_READ)

    def _move(self, end: socket.socket) -> None:
        if end not in self._ends:
            return
        try:
            data = end.recv(1 << 16)
            if data:
                self._ends[end][0].sendall(data)
                return
        except OSError:
            pass
        self._drop(end)

    def _drop(self, end: socket.socket) -> None:
        other = self._ends.pop(end, (None, 0))[0]
        for item in (end, other):
            if item is not None:
                self._ends.pop(item, None)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(item)
                item.close()

    def _is_cut(self, port: int) -> bool:
        return self._cut == "*" or self._cut == node_of_port(port)


def node_of_port(port: int) -> str:
    """The node whose process has a connection from this port; empty when nobody does."""
    inodes = {
        fields[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if int((fields := line.split())[1].rpartition(":")[2], 16) == port
    }
    for pid in (entry for entry in os.listdir("/proc") if entry.isdigit()):
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            node = next((item for item in variables if item.startswith(b"SLURMD_NODENAME=")), None)
            if node is None:
                continue
            for number in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{number}")[8:-1] in inodes:
                    return node.decode().partition("=")[2]
        except OSError:
            continue
    return ""


class Lab:
    """What tests do with a platform and its cluster."""

    def __init__(self, support: Any, home: Path, cluster: Any, settings: str = "") -> None:
        self.support, self.cluster, self.path = support, cluster, home
        self.ports = [support.free_port(), support.free_port()]
        self.wires = [Wire(port) for port in self.ports]
        home.mkdir(mode=0o700, exist_ok=True)
        pythons = {"skewed": make_skewed_python(home.with_name("skewed"), SKEW)}
        partitions = {"lab": "all", "urgent": "urgent", "closed": "closed", "skewed": "all"}
        pools = "".join(
            f'[pools.{name}]\nengine = "slurm"\npartition = "{partition}"\nrun_as = "service"\n'
            f'python = "{pythons.get(name) or os.path.realpath(sys.executable)}"\n'
            for name, partition in partitions.items()
        )
        self.prolog({})
        public = "".join(
            f'{name} = "http://127.0.0.1:{wire.port}"\n'
            for name, wire in zip(("public_url", "public_obs_url"), self.wires, strict=True)
        )
        (home / "settings.toml").write_text(f"{public}{settings}\n{pools}")
        self.platform: Any = None
        self._ids: dict[str, str] = {}

    def prolog(self, variables: dict[str, str]) -> None:
        """What a site sets on single machines: `TMPDIR=/there` by the machine's name."""
        lines = [f'[ "$SLURMD_NODENAME" = {node} ] && echo export {text}' for node, text in variables.items()]
        script = self.cluster.folder / "prolog.sh"
        script.write_text("\n".join(["#!/bin/sh", *lines, "exit 0", ""]))
        script.chmod(0o755)

    def start(self) -> None:
        """Start the platform (again), on the same ports."""
        ports = ("--port", str(self.ports[0]), "--obs-port", str(self.ports[1]))
        conf = {"SLURM_CONF": self.cluster.environment["SLURM_CONF"]}
        self.platform = self.support.start_platform(self.path, *ports, environment=conf)

    def kill(self) -> None:
        """Kill the whole platform without warning."""
        pids = self.platform.pids()
        for pid in (pids["supervisor"], *pids.values()):
            if pid > 1 and self.support.is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.wait(lambda: not any(map(self.support.is_alive, pids.values())), 20, "the platform's death")

    def close(self) -> None:
        """End everything but the cluster."""
        self.support.stop_platform(self.path)
        for wire in self.wires:
            wire.close()

    def cut(self, node: str) -> None:
        """Cut the way of one node to the platform."""
        for wire in self.wires:
            wire.cut(node)

    def mend(self) -> None:
        """Let everybody through again."""
        for wire in self.wires:
            wire.mend()

    def cli(self, *arguments: str | Path, **options: Any) -> Any:
        """What a user types."""
        return self.platform.cli(*arguments, **options)

    def submit(self, folder: Path, name: str, **more: Any) -> None:
        """Submit a job that counts."""
        (folder / "code").mkdir(exist_ok=True)
        (folder / "code/train.py").write_text(SCRIPT)
        given = {
            "pool": "lab",
            "nodes": 1,
            "flavor": "cpu.1",
            "restarts": 0,
            "steps": 30,
            "pause": 0.1,
            "later": 0.01,
            **more,
        }
        (folder / "job.yaml").write_text(JOB.format(name=name, **given))
        done = self.cli("submit", "job.yaml", cwd=folder)
        assert done.exit_code == 0, done.output
        self._ids[name] = self.show(name)["id"]

    def show(self, name: str) -> dict[str, Any]:
        """The job, as the API tells it. (A command takes too long to ask often.)"""
        url = f"{self.platform.url}/api/v1/jobs/{self._ids.get(name, name)}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.platform.token}"})
        deadline = time.monotonic() + 90
        while True:
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    found: dict[str, Any] = json.loads(answer.read())
                    return found
            except OSError as fault:
                # One of the platform's processes may just be starting again.
                if time.monotonic() > deadline:
                    raise AssertionError(f"the platform does not answer: {fault}") from None
            time.sleep(0.1)

    def log(self, name: str, rank: int = 0, attempt: int = 0) -> str:
        """A rank's log."""
        more = ("--attempt", str(attempt)) if attempt else ()
        return str(self.cli("logs", name, "--rank", str(rank), *more).stdout)

    def steps(self, name: str, rank: int = 0, attempt: int = 0) -> list[int]:
        """The steps that a rank's log tells of."""
        lines = self.log(name, rank, attempt).splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("step ")]

    def wait(self, claim: Callable[[], Any], seconds: float, what: str) -> None:
        """Wait until something is so; whoever waits in vain hears all that is known."""
        try:
            self.support.wait_until(claim, seconds=seconds, what=what)
        except AssertionError as fault:
            raise AssertionError(f"{fault}\n{self.tell_all()}") from None

    def tell_all(self) -> str:
        """The cluster's queue and machines, and the stories of all jobs that have not ended."""
        told = [self.cluster.call("squeue", "-a", "-t", "all", check=False).stdout]
        told.append(self.cluster.call("sinfo", "-N", "-l", check=False).stdout)
        for name in self._ids:
            shown = self.cli("show", name, "--json")
            if shown.exit_code != 0 or shown.json()["phase"] not in ("Completed", "Terminated"):
                told.append(f"--- {name}\n{self.story(name)}")
                told.append(str(self.cli("logs", name, "--platform").output)[-3000:])
                told.append(str(self.cli("logs", name, "--all").output)[-2000:])
        return "\n".join(told)

    def rest(self) -> None:
        """Wait until the machines are idle, and those that Slurm has drained meanwhile are back."""

        def are_idle() -> bool:
            lines = self.cluster.call("sinfo", "-h", "-N", "-p", "all", "-o", "%N %t", check=False).stdout
            states = [line.split()[-1] for line in lines.splitlines()]
            for line in lines.splitlines():
                name, state = line.split()
                if state.startswith("d") or state.endswith("*"):
                    self.cluster.call("scontrol", "update", f"nodename={name}", "state=resume", check=False)
            return bool(states) and all(state == "idle" for state in states)

        self.wait(are_idle, 120, "idle machines")

    def machines(self, name: str) -> list[str]:
        """The machines of a job that runs, in the order of its nodes."""
        listed = self.cluster.call("squeue", "-h", "-j", self.slurm_job(name), "-o", "%N").stdout.strip()
        return str(self.cluster.call("scontrol", "show", "hostnames", listed).stdout).split()

    def until_step(self, name: str, step: int, rank: int = 0, attempt: int = 1) -> None:
        """Wait until a rank has come so far. (The platform's copy is read: a command takes too long for that.)"""
        folder = self.path / "jobs" / self._ids[name] / f"attempt-{attempt}"

        def has_come() -> bool:
            logs = [path.read_text() for path in folder.glob(f"node-*/logs/rank-{rank}.log")]
            return any(f"step {step} " in log for log in logs)

        self.wait(has_come, 150, f"step {step} of {name}")

    def end(self, name: str, seconds: float = 180) -> dict[str, Any]:
        """The job at its end."""

        def has_ended() -> bool:
            return self.show(name)["phase"] in ("Completed", "Failed", "Terminated")

        self.wait(has_ended, seconds, f"the end of {name}")
        return self.show(name)

    def failures(self, machine: str) -> dict[str, float]:
        """The starts that the platform remembers to have failed on a machine."""
        try:
            book: dict[str, dict[str, float]] = json.loads((self.path / "run/slurm-nodes.json").read_bytes())
        except FileNotFoundError:
            return {}
        return book.get(machine, {})

    def story(self, name: str) -> str:
        """All that the platform tells of a job."""
        return str(self.cli("show", name).output) + str(self.cli("explain", name).output)

    def slurm_job(self, name: str, attempt: int = 1) -> str:
        """The number of an attempt in Slurm."""
        job_id = self._ids[name]
        lines = self.cluster.call("squeue", "-a", "-h", "-t", "all", "-o", "%i %j").stdout.splitlines()
        found = [line.split()[0] for line in lines if line.endswith(f"-{job_id}-{attempt}")]
        assert found, lines
        return str(found[-1])

    def processes(self, name: str, attempt: int = 1, node: int = 0) -> dict[str, int]:
        """The runner's processes of a node, by their parts: supervisor, runner, courier."""
        mirror = self.path / "jobs" / self._ids[name] / f"attempt-{attempt}" / f"node-{node}"
        runner = int(json.loads((mirror / "status.json").read_bytes())["pid"])
        supervisor = _parent(runner)
        children = [
            int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent(int(pid)) == supervisor
        ]
        couriers = [pid for pid in children if pid != runner]
        assert len(couriers) == 1 and supervisor > 1, (supervisor, children)
        return {"supervisor": supervisor, "runner": runner, "courier": couriers[0]}


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def make_skewed_python(folder: Path, seconds: float) -> str:
    """An interpreter whose clock is wrong by so many seconds, where a runner of this version was brought before."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "sitecustomize.py").write_text(
        f"import time\nreal = time.time\ntime.time = lambda: real() + {seconds}\n"
    )
    python = folder / "bin/python"
    # Runners start without `site`, which is what makes this clock wrong: the first process gets it all the same.
    start = folder / "start"
    start.write_text(
        '#!/bin/bash\ngiven=()\nfor each; do [ "$each" = -S ] || given+=("$each"); done\n'
        f'exec -a {python} {python.resolve()} "${{given[@]}}"\n'
    )
    start.chmod(0o755)
    return str(start)


@contextlib.contextmanager
def open_lab(support: Any, folder: Path, settings: str = "") -> Iterator[Lab]:
    """A cluster with a platform; both end with it."""
    more = "TaskProlog={folder}/prolog.sh\n"
    # As long as sites give: on a busy machine three seconds are too short for bringing things home.
    with slurm_yard.open_cluster(more=more, kill_wait=20) as cluster:
        lab = Lab(support, folder / "home", cluster, settings)
        try:
            lab.start()
            assert lab.cli("obs", "mb", "results").exit_code == 0
            deadline = time.monotonic() + 90
            while "n3" not in lab.cli("nodes").stdout:
                assert time.monotonic() < deadline, lab.cli("nodes").output
            yield lab
        finally:
            lab.close()
