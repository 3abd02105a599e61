"""A whole platform in one process: database, store, control loop and local engine, all real."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.control.context import Control
from trainshed.control.loop import run_loop
from trainshed.daemon.control_wiring import build_control
from trainshed.db.attempts import AttemptRow, attempts_of
from trainshed.db.engine import begin, read
from trainshed.db.events import EventRow, events_of
from trainshed.db.jobs import JobRow, change_job, insert_job, job_by_id
from trainshed.db.users import list_users
from trainshed.db.workspaces import list_workspaces
from trainshed.model.home import Home, RunFolder
from trainshed.model.phase import Phase
from trainshed.model.settings import Settings
from trainshed.runner.log_archive import ARCHIVE_BUCKET, archive_prefix
from trainshed.services.platform import Platform, open_platform
from trainshed.services.setup import first_start


class Station:
    """Submits jobs to a control loop that runs in a thread, and looks at what becomes of them."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.home = Home(path)
        for folder in (self.home.run, self.home.jobs, self.home.environments):
            folder.mkdir(parents=True)
        self.platform: Platform = open_platform(self.home, settings)
        first_start(self.platform)
        with read(self.platform.engine) as connection:
            self.workspace = list_workspaces(connection)[0]
            self.user = list_users(connection)[0]
        self.platform.store.create_bucket("results", self.workspace.id)
        self.control: Control = build_control(self.platform)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the control loop."""
        self._stop.clear()
        self._thread = threading.Thread(target=run_loop, args=(self.control, self._stop))
        self._thread.start()

    def halt(self) -> None:
        """Stop the control loop; jobs go on."""
        self._stop.set()
        self.platform.ring()
        if self._thread is not None:
            self._thread.join(120)
            self._thread = None

    def close(self) -> None:
        """End everything."""
        self.halt()
        self.platform.close()

    def submit(self, script: str, files: dict[str, str] | None = None, **spec: Any) -> str:
        """A job of one Python file."""
        job_id = str(uuid.uuid4())
        for name, content in {"train.py": script, **(files or {})}.items():
            self.platform.store.put(".code", f"{job_id}/{name}", content.encode())
        data = {"code": f"snapshot:{job_id}", "boot": "train.py", **spec}
        if "command" in spec:
            del data["boot"]
        row = JobRow(
            id=job_id,
            workspace_id=self.workspace.id,
            name=f"job-{job_id[:8]}",
            owner_id=self.user.id,
            phase=Phase.CREATING,
            spec=data,
            flavor=data.get("flavor", "cpu.1"),
            nodes=data.get("nodes", 1),
            restarts=data.get("restarts", 0),
            priority=data.get("priority", 0),
            preemptible=data.get("preemptible", False),
            created_at=time.time(),
            code_bucket=".code",
            code_prefix=f"{job_id}/",
        )
        with begin(self.platform.engine) as connection:
            insert_job(connection, row)
        self.platform.ring()
        return job_id

    def ask_stop(self, job_id: str) -> None:
        """What the service does when a user stops a job."""
        while True:
            with begin(self.platform.engine) as connection:
                job = job_by_id(connection, job_id)
                assert job is not None
                if (
                    change_job(connection, job, stop_requested=True, stop_reason="stopped by a test")
                    is not None
                ):
                    break
        self.platform.ring()

    def job(self, job_id: str) -> JobRow:
        """The job's row."""
        with read(self.platform.engine) as connection:
            row = job_by_id(connection, job_id)
        assert row is not None
        return row

    def attempts(self, job_id: str) -> list[AttemptRow]:
        """The job's attempts."""
        with read(self.platform.engine) as connection:
            return attempts_of(connection, job_id)

    def events(self, job_id: str) -> list[EventRow]:
        """The job's story."""
        with read(self.platform.engine) as connection:
            return events_of(connection, job_id)

    def wait(self, job_id: str, seconds: float = 180.0) -> JobRow:
        """The job at its end."""
        try:
            self.until(lambda: self.job(job_id).phase.is_terminal, seconds, f"job {job_id} does not end")
        except AssertionError as fault:
            # One that hangs has to say where: only its story and its logs know.
            told = [f"{fault}: {self.job(job_id)}", *(event.message for event in self.events(job_id))]
            for log in sorted((self.home.jobs / job_id).glob("attempt-*/node-*/logs/*.log")):
                told.append(f"--- {log}\n{log.read_bytes()[-2000:].decode(errors='replace')}")
            raise AssertionError("\n".join(told)) from None
        return self.job(job_id)

    def until(
        self, condition: Callable[[], bool], seconds: float = 90.0, what: str = "never happened"
    ) -> None:
        """Wait for something."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.02)

    def run_folder(self, job_id: str, attempt: int = 1, node: int = 0) -> RunFolder:
        """Where a node's run lies."""
        return self.home.run_folder(job_id, attempt, node)

    def open_gate(self, job_id: str) -> None:
        """Let a job go on whose script begins with `GATE` and that has an output named `out`."""
        (self.run_folder(job_id).root / "outputs" / "out" / "go").touch()

    def wait_for_line(self, job_id: str, text: bytes, attempt: int = 1) -> None:
        """Wait until the job has printed something."""
        log = self.run_folder(job_id, attempt).rank_log(0)
        self.until(lambda: log.exists() and text in log.read_bytes(), 180, f"no {text!r} in the log")

    def log(self, job_id: str, stream: str = "rank-0", attempt: int = 1, node: int = 0) -> bytes:
        """A log as it was archived."""
        store = self.platform.store
        data = b""
        for info in store.walk(ARCHIVE_BUCKET, f"{archive_prefix(job_id, attempt, node)}{stream}/"):
            with store.open(ARCHIVE_BUCKET, info.key) as piece:
                data += piece.read()
        return data

    def result(self, key: str) -> bytes:
        """An object of the results bucket."""
        with self.platform.store.open("results", key) as file:
            return file.read()


@pytest.fixture
def make_station(tmp_path: Path) -> Iterator[Callable[..., Station]]:
    """Makes a station with settings of the test's own; not started."""
    made: list[Station] = []

    def make(**settings: Any) -> Station:
        station = Station(tmp_path / f"home-{len(made)}", Settings(**settings))
        made.append(station)
        return station

    yield make
    for station in made:
        station.close()


@pytest.fixture
def station(make_station: Callable[..., Station]) -> Station:
    """A platform whose control loop runs."""
    made = make_station()
    made.start()
    return made
