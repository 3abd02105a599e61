"""A real API server in a process of its own, on a home that the tests can reach into."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainshed.client import Client
from trainshed.db.attempts import AttemptRow, attempt_of, change_attempt, insert_attempt
from trainshed.db.engine import begin, read
from trainshed.db.jobs import JobRow, change_job, job_by_id
from trainshed.db.nodes import replace_nodes
from trainshed.model.flavor import Device, Node
from trainshed.model.home import Home, RunFolder
from trainshed.model.phase import Phase
from trainshed.model.settings import Settings
from trainshed.services.platform import Platform, open_platform
from trainshed.services.setup import first_start

_STEPS = [Phase.PENDING, Phase.RUNNING]


@dataclass
class ApiServer:
    """The API, and hands to do what the control loop and the runner would do."""

    home: Home
    platform: Platform
    port: int
    token: str
    workspace_id: str
    process: subprocess.Popen[bytes] | None = None
    clients: list[Client | httpx.Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")}
        with (self.home.path / "api.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainshed.daemon.api_process", "--home", str(self.home.path)],
                env=environment | {"TRAINSHED_PORT": str(self.port), "TRAINSHED_OBS_PORT": "1"},
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 90
        while True:
            try:
                httpx.get(f"{self.url}/healthz", timeout=5)
                return
            except httpx.HTTPError:
                assert self.process.poll() is None, (self.home.path / "api.log").read_text()
                assert time.monotonic() < deadline, "the API did not start"
                time.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(90)
            self.process = None

    def client(self, token: str | None = None) -> Client:
        client = Client(self.url, self.token if token is None else token)
        self.clients.append(client)
        return client

    @cached_property
    def _http(self) -> httpx.Client:
        client = httpx.Client(base_url=self.url, timeout=120, verify=False)
        client.headers["Authorization"] = f"Bearer {self.token}"
        self.clients.append(client)
        return client

    def http(self) -> httpx.Client:
        return self._http

    def job_row(self, job_id: str) -> JobRow:
        with read(self.platform.engine) as connection:
            row = job_by_id(connection, job_id)
        assert row is not None
        return row

    def change(self, job_id: str, **changes: Any) -> None:
        with begin(self.platform.engine) as connection:
            row = job_by_id(connection, job_id)
            assert row is not None
            assert change_job(connection, row, **changes) is not None

    def begin_attempt(self, job_id: str, number: int = 1) -> RunFolder:
        """Do what the control loop and the runner do when an attempt starts."""
        now = time.time()
        if self.job_row(job_id).phase is Phase.CREATING:
            self.change(job_id, phase=Phase.PENDING, queued_at=now)
        with begin(self.platform.engine) as connection:
            placement = {"node": "laptop", "devices": [], "cpus": 1.0, "memory_mb": 1024}
            insert_attempt(connection, AttemptRow(job_id, number, "local", [placement], "running", now, now))
        folder = self.home.run_folder(job_id, number, 0)
        folder.rank_log(0).parent.mkdir(parents=True)
        folder.rank_log(0).touch()
        folder.platform_log.write_text("staging\n")
        self.change(job_id, phase=Phase.RUNNING, detail="training", attempt=number, started_at=now)
        return folder

    def end_attempt(self, job_id: str, number: int = 1, phase: Phase = Phase.COMPLETED) -> None:
        """Do what the control loop does when an attempt has ended."""
        now = time.time()
        ending = {"outcome": "completed" if phase is Phase.COMPLETED else "failed", "message": "It is over."}
        with begin(self.platform.engine) as connection:
            row = attempt_of(connection, job_id, number)
            assert row is not None
            change_attempt(connection, row, state="ended", ended_at=now, ending=ending)
        self.change(job_id, phase=phase, detail="", ended_at=now, ending=ending)


def make_server(path: Path, port: int) -> ApiServer:
    path.mkdir(parents=True)
    home = Home(path)
    home.run.mkdir(mode=0o700)
    platform = open_platform(home, Settings(port=port))
    made = first_start(platform)
    assert made is not None
    devices = tuple(Device("ascend", index, "rehearsal", 0, True) for index in range(8))
    with begin(platform.engine) as connection:
        replace_nodes(connection, "local", [Node("laptop", "default", 2, 8192, devices)])
    return ApiServer(home, platform, port, made.token, made.workspace_id)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, support: Any) -> Iterator[ApiServer]:
    """One API server for the tests of a module."""
    server = make_server(tmp_path_factory.mktemp("api") / "home", support.free_port())
    try:
        server.start()
        yield server
    finally:
        for client in server.clients:
            client.close()
        server.kill()
        server.platform.close()


@pytest.fixture
def client(api: ApiServer) -> Iterator[Client]:
    """A client of the administrator."""
    with Client(api.url, api.token) as client:
        yield client


@pytest.fixture
def code_folder(tmp_path: Path) -> Path:
    """A small code folder."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    return folder


@pytest.fixture
def submit(client: Client, code_folder: Path) -> Callable[..., str]:
    """Submit a small job; its id."""

    def run(**fields: Any) -> str:
        return client.run(**({"code": str(code_folder), "boot": "train.py"} | fields)).id

    return run
