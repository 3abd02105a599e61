"""Nodes of a job as a cluster would start them: from the bundle, in an environment that knows nothing of the platform.

The database, the control loop, the API and the store are real; only the engine is the test's own: it starts the nodes'
processes on this machine, as srun would on others.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from trainshed.control.loop import run_loop
from trainshed.daemon.control_wiring import build_control
from trainshed.db.engine import begin, read
from trainshed.db.events import events_of
from trainshed.db.jobs import JobRow, change_job, insert_job, job_by_id
from trainshed.db.users import list_users
from trainshed.db.workspaces import list_workspaces
from trainshed.durable import write_durably
from trainshed.engines.engine import AttemptLaunch, NodeObservation
from trainshed.model.attempt import NodeReport
from trainshed.model.errors import Conflict, NotAuthenticated, TrainshedError
from trainshed.model.flavor import Node
from trainshed.model.home import Home
from trainshed.model.launch_plan import from_json
from trainshed.model.phase import Phase
from trainshed.model.settings import Settings
from trainshed.runner.inventory import describe_node
from trainshed.runner.remote.platform_link import PlatformLink
from trainshed.services.attempt_tokens import attempt_token
from trainshed.services.log_source import LogSource
from trainshed.services.platform import open_platform
from trainshed.services.remote_start import remote_start
from trainshed.services.setup import first_start

SCRIPT = """
import json, os, sys, time
rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
given = dict(item[2:].split("=", 1) for item in sys.argv[1:] if item.startswith("--"))
print("rank", rank, "of", world, "master", os.environ["MASTER_ADDR"], flush=True)
assert not any(name.startswith("TRAINSHED_RUNNER") for name in os.environ)
if "ask" in given:
    import urllib.request
    for name in ("TRAINSHED_URL", "TRAINSHED_OBS_URL"):
        print(name, urllib.request.urlopen(os.environ[name] + "/healthz", timeout=120).status, flush=True)
data = open(os.environ["TRAINSHED_INPUT_DATA"] + "/seed.txt").read() if "TRAINSHED_INPUT_DATA" in os.environ else "-"
with open(os.environ["TRAINSHED_METRICS_FILE"], "a") as file:
    file.write(json.dumps({"name": "loss", "value": 0.5, "step": 1}) + "\\n")
for number in range(int(given.get("lines", "3"))):
    print("line", number, data, flush=True)
    # What a test does to a first attempt has to come before its end, on a busy machine as well.
    time.sleep(float(given.get("pause", "0")) if os.environ["TRAINSHED_ATTEMPT"] == "1" else 0)
if given.get("fail") == rank:
    sys.exit(3)
open(os.environ["TRAINSHED_OUTPUT_OUT"] + f"/model-{rank}.txt", "w").write("weights " + data)
print("done", flush=True)
"""


class HandEngine:
    """Starts every node of an attempt by hand, as a scheduler would: one shell per node, in an empty environment."""

    name = "local"
    queues = False

    def __init__(self, station: Station, folder: Path) -> None:
        self._station = station
        self._folder = folder
        self.nodes: dict[tuple[str, int, int], subprocess.Popen[bytes]] = {}
        self.salvaged: list[str] = []

    def capacity(self) -> list[Node]:
        """Two machines, for the queue to place jobs on."""
        return [replace(describe_node(name=f"machine-{index}"), cpus=8, memory_mb=32768) for index in (0, 1)]

    def submit(self, launch: AttemptLaunch) -> None:
        """Start what is not started yet."""
        for index in range(len(launch.nodes)):
            if (launch.job_id, launch.attempt, index) not in self.nodes:
                self.nodes[launch.job_id, launch.attempt, index] = self.start(launch, index)

    def start(self, launch: AttemptLaunch, index: int) -> subprocess.Popen[bytes]:
        """One node's processes."""
        start = remote_start(self._station.platform)(launch)
        place = self._folder / f"machine-{index}"
        place.mkdir(exist_ok=True)
        with (place / "output").open("ab") as output:
            return subprocess.Popen(
                ["/bin/sh", "-c", start.script],
                env={
                    "PATH": "/usr/bin:/bin",
                    "TMPDIR": str(place),
                    "TRAINSHED_PYTHON": os.path.realpath(sys.executable),
                    "SLURM_NODEID": str(index),
                    "SLURMD_NODENAME": f"machine-{index}",
                    **start.variables,
                },
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def describe(self, job_id: str, attempt: int, nodes: int) -> list[NodeObservation]:
        """What the mirrors and the processes say."""
        return [self._observe(job_id, attempt, index) for index in range(nodes)]

    def _observe(self, job_id: str, attempt: int, index: int) -> NodeObservation:
        process = self.nodes.get((job_id, attempt, index))
        is_alive = process is not None and process.poll() is None
        try:
            status = self._station.home.run_folder(job_id, attempt, index).status.read_bytes()
            report = from_json(NodeReport, json.loads(status))
        except FileNotFoundError:
            report = None
        if report is not None and report.ending is not None:
            return NodeObservation(index, "ended", report)
        if process is None:
            return NodeObservation(index, "absent", report)
        return NodeObservation(index, "alive" if is_alive else "lost", report)

    def cancel(
        self,
        job_id: str,
        attempt: int,
        *,
        reason: str,
        outcome: Literal["stopped", "completed", "hung"] = "stopped",
    ) -> None:
        """Leave the request in the mirrors."""
        for key in self.nodes:
            folder = self._station.home.run_folder(*key)
            if key[:2] == (job_id, attempt) and not folder.stop.exists():
                folder.path.mkdir(parents=True, exist_ok=True)
                write_durably(folder.stop, {"reason": reason, "outcome": outcome})

    def salvage(self, job_id: str, attempt: int) -> None:
        """Bring home what the mirrors of lost nodes hold, by the ordinary program for that."""
        for key, process in self.nodes.items():
            folder = self._station.home.run_folder(*key)
            if key[:2] == (job_id, attempt) and process.poll() is not None and folder.launch.exists():
                lock = os.open(folder.lock, os.O_RDWR | os.O_CREAT, 0o600)
                command = [sys.executable, "-m", "trainshed.runner.main", "--salvage", str(folder.path)]
                subprocess.run([*command, "--lock", str(lock)], pass_fds=(lock,), check=True, timeout=120)
                os.close(lock)
                self.salvaged.append(job_id)

    def discard(self, job_id: str, attempt: int) -> bool:
        """Keep everything."""
        return False

    def dry_run(self, launch: AttemptLaunch) -> str:
        """Nothing to show."""
        return ""

    def allocation(self, job_id: str, attempt: int) -> tuple[()]:
        """Nothing of its own."""
        return ()


class Station:
    """A platform whose nodes are elsewhere."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path / "home")
        for folder in (self.home.run, self.home.jobs, self.home.environments):
            folder.mkdir(parents=True)
        self.ports = [_free_port(), _free_port()]
        settings = Settings(port=self.ports[0], obs_port=self.ports[1])
        self.platform = open_platform(self.home, settings)
        first_start(self.platform)
        with read(self.platform.engine) as connection:
            self.workspace = list_workspaces(connection)[0]
            self.user = list_users(connection)[0]
        self.platform.store.create_bucket("results", self.workspace.id)
        self.platform.store.put("results", "data/seed.txt", b"42")
        (path / "machines").mkdir()
        self.machines = path / "machines"
        self.engine = HandEngine(self, self.machines)
        control = build_control(self.platform)
        self._control = replace(control, engines={**control.engines, "local": self.engine})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run_loop, args=(self._control, self._stop))
        self.servers: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The API."""
        return f"http://127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        """Bring up the control loop and both servers."""
        self.start_servers()
        self._thread.start()

    def start_servers(self) -> None:
        """Bring up the API and the store, and wait for them."""
        variables = {
            **os.environ,
            "TRAINSHED_PORT": str(self.ports[0]),
            "TRAINSHED_OBS_PORT": str(self.ports[1]),
        }
        for part in ("api", "store"):
            command = [
                sys.executable,
                "-m",
                f"trainshed.daemon.{part}_process",
                "--home",
                str(self.home.path),
            ]
            self.servers.append(subprocess.Popen(command, env=variables))
        for port in self.ports:
            _wait(lambda port=port: _answers(port), 120, "the platform's ports")

    def kill_servers(self) -> None:
        """End both at once."""
        for server in self.servers:
            server.kill()
            server.wait()
        self.servers.clear()

    def close(self) -> None:
        """End everything."""
        self._stop.set()
        self.platform.ring()
        self._thread.join(90)
        for process in self.engine.nodes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.kill_servers()
        self.platform.close()

    def submit(self, nodes: int = 1, parameters: dict[str, Any] | None = None, **spec: Any) -> str:
        """A job of one script."""
        job_id = str(uuid.uuid4())
        self.platform.store.put(".code", f"{job_id}/train.py", SCRIPT.encode())
        data = {
            "code": f"snapshot:{job_id}",
            "boot": "train.py",
            "nodes": nodes,
            "parameters": parameters or {},
            "inputs": {"data": "obs://results/data/"},
            "outputs": {"out": f"obs://results/{job_id}/"},
            "grace": 2,
            **spec,
        }
        row = JobRow(
            job_id, self.workspace.id, f"job-{job_id[:8]}", self.user.id, Phase.CREATING, data, "cpu.1", nodes,
            time.time(), code_bucket=".code", code_prefix=f"{job_id}/", restarts=data.get("restarts", 0),
        )  # fmt: skip
        with begin(self.platform.engine) as connection:
            insert_job(connection, row)
        self.platform.ring()
        return job_id

    def job(self, job_id: str) -> JobRow:
        """The job's row."""
        with read(self.platform.engine) as connection:
            row = job_by_id(connection, job_id)
        assert row is not None
        return row

    def wait(self, job_id: str, seconds: float = 180) -> JobRow:
        """The job at its end."""
        try:
            _wait(lambda: self.job(job_id).phase.is_terminal, seconds, "the job's end")
        except AssertionError:
            words = [path.read_text() for path in self.machines.glob("machine-*/output")]
            raise AssertionError("\n".join([str(self.job(job_id)), *words])) from None
        return self.job(job_id)

    def log(self, job_id: str, node: int, stream: str, attempt: int = 1) -> str:
        """A log, as people read it."""
        return LogSource(self.platform, job_id, attempt, node, stream).read(0, 1 << 20).decode()

    def stop(self, job_id: str) -> None:
        """What the service does when a user stops a job."""
        while True:
            with begin(self.platform.engine) as connection:
                row = job_by_id(connection, job_id)
                assert row is not None
                if change_job(connection, row, stop_requested=True, stop_reason="enough") is not None:
                    break
        self.platform.ring()

    def outputs(self, job_id: str) -> list[str]:
        """The names of the job's outputs."""
        return [info.key.rpartition("/")[2] for info in self.platform.store.walk("results", f"{job_id}/")]


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    station = Station(tmp_path_factory.mktemp("station"))
    try:
        station.start()
        yield station
    finally:
        station.close()


@pytest.mark.slow
def test_who_misses_an_output_is_told_the_machine_and_the_folder(station: Station) -> None:
    station.platform.store.create_bucket("vanishing", station.workspace.id)
    job_id = station.submit(
        parameters={"lines": 40, "pause": 0.1},
        outputs={"early": "obs://vanishing/", "out": "obs://results/told/"},
    )
    _wait(lambda: "line 2" in station.log(job_id, 0, "rank-0"), 120, "the log while it runs")
    station.platform.store.delete_bucket("vanishing")
    job = station.wait(job_id)
    assert job.ending is not None and job.ending["code"] == "output", job.ending
    [folder] = station.machines.glob(f"machine-0/trainshed-*/run-{job_id[:8]}-1-0-*")
    assert f"`scp -r machine-0:{folder}/root .` gets them" in job.ending["hint"], job.ending
    assert (folder / "root/outputs/early").is_dir() and (folder / "undelivered").exists()
    assert job.ending["hint"] in station.log(job_id, 0, "platform")
    with read(station.platform.engine) as connection:
        told = [event.message for event in events_of(connection, job_id)]
    kept = [words for words in told if "kept in the run folder: outputs: " in words]
    assert kept and kept[0].endswith(f"(machine-0:{folder}/root)"), told
    # The other output had nothing to do with it.
    assert [info.key for info in station.platform.store.walk("results", "told/")] == ["told/model-0.txt"]
    shutil.rmtree(folder)


@pytest.mark.slow
def test_two_nodes_run_to_their_end_and_are_followed_live(station: Station) -> None:
    job_id = station.submit(nodes=2, parameters={"lines": 40, "pause": 0.3, "ask": 1})
    _wait(lambda: "line 2" in station.log(job_id, 1, "rank-1"), 120, "the second node's log while it runs")
    assert not station.job(job_id).phase.is_terminal
    # Somebody else cannot be a node that runs already, nor speak for it.
    rival = PlatformLink(station.url, attempt_token(station.platform, job_id, 1), 1, "ab" * 16)
    facts = {"host": "rival", "address": "127.0.0.1"}
    with pytest.raises(Conflict, match="another process"):
        rival.check_in(facts)
    with pytest.raises(Conflict):
        rival.report([("logs/rank-1.log", 0, b"forged")])
    job = station.wait(job_id)
    assert job.phase is Phase.COMPLETED, job.ending
    for node in (0, 1):
        log = station.log(job_id, node, f"rank-{node}")
        assert f"rank {node} of 2 master 127.0.0.2" in log and "line 39 42" in log and log.endswith("done\n")
        assert "forged" not in log and "TRAINSHED_OBS_URL 200" in log
    assert sorted(station.outputs(job_id)) == ["model-0.txt", "model-1.txt"]
    archived = [info.key for info in station.platform.store.walk(".jobs", f"{job_id}/attempt-1/node-0/")]
    assert any(key.endswith("metrics.jsonl") for key in archived)
    assert any(
        "loss" in line for line in station.home.run_folder(job_id, 1, 0).metrics.read_text().splitlines()
    )
    # The attempt is over: its token opens nothing any more, and the machines are as they were.
    with pytest.raises(NotAuthenticated, match="is over"):
        rival.report()
    rival.close()
    _wait(
        lambda: all(item.poll() is not None for item in station.engine.nodes.values()), 120, "the nodes' end"
    )
    assert not list(station.machines.glob("machine-*/trainshed-*/run-*"))


@pytest.mark.slow
def test_the_platform_may_be_killed_while_nodes_run(station: Station) -> None:
    job_id = station.submit(nodes=2, parameters={"lines": 20, "pause": 0.2})
    _wait(lambda: "line 2" in station.log(job_id, 0, "rank-0"), 120, "the first lines")
    station.kill_servers()
    time.sleep(3)
    station.start_servers()
    job = station.wait(job_id)
    assert job.phase is Phase.COMPLETED and job.attempt == 1, job.ending
    for node in (0, 1):
        log = station.log(job_id, node, f"rank-{node}")
        assert [f"line {number} 42" for number in range(20)] == [
            line for line in log.splitlines() if line.startswith("line")
        ]


@pytest.mark.slow
def test_a_killed_runner_is_salvaged_on_its_machine_and_another_attempt_runs(station: Station) -> None:
    job_id = station.submit(parameters={"lines": 300, "pause": 0.1}, restarts=1)
    _wait(lambda: "line 3" in station.log(job_id, 0, "rank-0"), 120, "the first lines")
    status = json.loads(station.home.run_folder(job_id, 1, 0).status.read_bytes())
    os.kill(status["pid"], signal.SIGKILL)
    job = station.wait(job_id)
    assert job.phase is Phase.COMPLETED and job.attempt == 2, job.ending
    assert "line 3" in station.log(job_id, 0, "rank-0") and "done" not in station.log(job_id, 0, "rank-0")
    assert station.log(job_id, 0, "rank-0", attempt=2).endswith("done\n")
    first = json.loads(station.home.run_folder(job_id, 1, 0).status.read_bytes())
    assert first["ending"]["code"] == "runner_lost"


@pytest.mark.slow
def test_a_node_that_vanishes_leaves_the_log_that_had_come(station: Station) -> None:
    job_id = station.submit(parameters={"lines": 600, "pause": 0.1})
    _wait(lambda: "line 3" in station.log(job_id, 0, "rank-0"), 120, "the first lines")
    os.killpg(station.engine.nodes[job_id, 1, 0].pid, signal.SIGKILL)
    job = station.wait(job_id)
    assert job.phase is Phase.FAILED and job.ending is not None
    assert (job.ending["cause"], job.ending["code"]) == ("platform", "runner_lost")
    assert job_id in station.engine.salvaged
    assert "line 3" in station.log(job_id, 0, "rank-0")


@pytest.mark.slow
def test_stopping_and_failing_reach_all_nodes(station: Station) -> None:
    stopped = station.submit(nodes=2, parameters={"lines": 600, "pause": 0.1})
    _wait(lambda: "line 1" in station.log(stopped, 1, "rank-1"), 120, "the first lines")
    station.stop(stopped)
    assert station.wait(stopped).phase is Phase.TERMINATED
    failed = station.submit(nodes=2, parameters={"fail": 1})
    job = station.wait(failed)
    assert job.phase is Phase.FAILED and job.ending is not None
    assert (job.ending["rank"], job.ending["exit_code"]) == (1, 3)


@pytest.mark.slow
def test_a_platform_that_is_away_at_the_start_is_waited_for(station: Station) -> None:
    station.kill_servers()
    job_id = station.submit(parameters={"ask": 1})
    _wait(lambda: (job_id, 1, 0) in station.engine.nodes, 120, "the node's start")
    time.sleep(2)
    station.start_servers()
    job = station.wait(job_id)
    assert job.phase is Phase.COMPLETED and job.attempt == 1, job.ending
    # Behind its wall the job reaches the platform, too.
    log = station.log(job_id, 0, "rank-0")
    assert "TRAINSHED_URL 200" in log and "TRAINSHED_OBS_URL 200" in log


@pytest.mark.slow
def test_a_machine_that_is_taken_away_says_so_in_time(station: Station) -> None:
    job_id = station.submit(parameters={"lines": 600, "pause": 0.1})
    _wait(lambda: "line 3" in station.log(job_id, 0, "rank-0"), 120, "the first lines")
    # As a scheduler does before it takes the machine: SIGTERM to everything.
    os.killpg(station.engine.nodes[job_id, 1, 0].pid, signal.SIGTERM)
    job = station.wait(job_id)
    assert job.phase is Phase.FAILED and job.ending is not None
    assert (job.ending["cause"], job.ending["code"]) == ("node", "ended_from_outside")
    assert job_id not in station.engine.salvaged
    assert station.engine.nodes[job_id, 1, 0].wait(90) == 1


def test_strangers_are_refused(station: Station) -> None:
    for token in ("", "tsr_x.1.y", "tsh_nothing"):
        link = PlatformLink(station.url, token, 0, "cd" * 16)
        with pytest.raises(TrainshedError) as refused:
            link.report()
        assert refused.value.status == 401
        link.close()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    from trainshed.daemon.preflight import find_free_port

    # Not one that an outgoing connection may have when a platform comes back there.
    return find_free_port("127.0.0.1")


def _wait(claim: Any, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
