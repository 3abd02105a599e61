"""Kill -9 of any process at random moments, over many jobs: the platform's first two promises."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.client.objects import ObjectClient
from trainshed.model.errors import Conflict, TrainshedError
from trainshed.model.home import Home
from trainshed.model.phase import Phase

JOBS = 66
SEED = 20
# On a slow machine every process would be killed sooner or later; those that are left then come home in peace.
KILLING_SECONDS = 120.0
# So many processes of jobs are killed: each costs one attempt at most, so that enough jobs are left to complete.
JOB_KILLS = JOBS * 3 // 5
# Each job writes numbered lines; after each it notes beside, outside the log, how many it has written.
SCRIPT = """
import os, sys, time
given = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
lines, attempt = int(given["lines"]), os.environ["TRAINSHED_ATTEMPT"]
out = os.environ["TRAINSHED_OUTPUT_OUT"]
open(f"{out}/start-{attempt}-{os.urandom(4).hex()}", "w").close()
note = os.open(f"{out}/count-{attempt}", os.O_WRONLY | os.O_CREAT)
for number in range(lines):
    os.write(1, b"line %d of attempt %s\\n" % (number, attempt.encode()))
    os.pwrite(note, b"%08d" % (number + 1), 0)
    time.sleep(0.01)
os.write(1, b"done\\n")
"""


class Killer(threading.Thread):
    """Kills one process after the other, by pid, never one that this test did not cause."""

    def __init__(self, platform: Any, marker: str, seed: int) -> None:
        super().__init__()
        self._platform = platform
        self._home: Home = platform.home
        self._marker = marker.encode()
        self._random = random.Random(seed)
        self.stop = threading.Event()
        self.kills: dict[str, int] = {}

    def run(self) -> None:
        parts = ["api", "store", "control", "fork-server"]
        last_part = time.monotonic()
        end = last_part + KILLING_SECONDS
        while not self.stop.wait(self._random.uniform(0.05, 0.6)) and time.monotonic() < end:
            target = self._random.choice(["runner", "user"])
            if self.kills.get("runner", 0) + self.kills.get("user", 0) >= JOB_KILLS:
                target = ""
            # The platform gets time to stand up again, or no job would ever be accepted.
            if time.monotonic() - last_part > self._random.uniform(1.0, 4.0):
                target = self._random.choice(parts)
                last_part = time.monotonic()
            pid = self._find(target) if target else None
            if pid:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.kills[target] = self.kills.get(target, 0) + 1

    def _find(self, target: str) -> int | None:
        if target == "runner":
            pids = list(_runner_pids(self._home))
        elif target == "user":
            pids = list(_user_pids(self._marker))
        else:
            # Mostly one that does its work; sometimes one that is just starting. Were it always killed in
            # its start, on a slow machine no job would ever be accepted.
            state = json.loads(self._home.state.read_bytes())
            pids = [
                part["pid"]
                for part in state["processes"]
                if part["name"] == target and (part["state"] == "ready" or self._random.random() < 0.2)
            ]
        return self._random.choice(pids) if pids else None


def _runner_pids(home: Home) -> Iterator[int]:
    for status in home.jobs.glob("*/attempt-*/node-*/status.json"):
        try:
            report = json.loads(status.read_text())
        except (OSError, ValueError):
            continue
        pid = report["pid"]
        # A number that was given out again is somebody else's.
        if report["ending"] is None and any(_open_files(pid, home.path)):
            yield pid


def _user_pids(marker: bytes) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker in b" ".join(command) and b"/job/code/train.py" in command:
                yield int(entry.name)


def _insist(action: Any, seconds: float = 120.0) -> Any:
    """Call the platform again while one of its processes is being restarted."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except TrainshedError as fault:
            if fault.status < 500 or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _submit(client: Any, code: Path, name: str, marker: str, chance: random.Random) -> None:
    spec = {
        "name": name,
        "code": str(code),
        "boot": "train.py",
        "parameters": {"marker": marker, "lines": chance.randint(5, 120)},
        "outputs": {"out": f"obs://survival/{name}/"},
        "restarts": chance.choice([0, 0, 2]),
        "grace": 1,
    }
    try:
        _insist(lambda: client.submit(spec))
    except Conflict:
        # The server died between accepting the job and saying so; the job is there.
        assert client.get(name).name == name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_job_ends_true_whatever_is_killed(support: Any, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    marker = f"survival-{os.getpid()}-{os.urandom(4).hex()}"
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    # More jobs at once than cores: pretend devices reserve none.
    platform = support.start_platform(tmp_path / "home", "--rehearse", "nvidia:6")
    client, objects = platform.client(), ObjectClient(platform.obs_url, platform.token)
    killer = Killer(platform, marker, SEED)
    try:
        _insist(lambda: _make_bucket(platform))
        killer.start()
        try:
            for number in range(JOBS):
                _submit(client, code, f"job-{number}", marker, chance)
            _await_ends(client, killer)
        finally:
            killer.stop.set()
            killer.join(90)
        support.wait_until(
            lambda: platform.cli("status", "--json").json()["ready"], what="the platform does not stand up"
        )
        assert sum(killer.kills.values()) >= 20 and len(killer.kills) >= 5, killer.kills
        counted: dict[str, int] = {}
        for number in range(JOBS):
            phase = _check_job(client, objects, f"job-{number}")
            counted[phase] = counted.get(phase, 0) + 1
        assert counted.get("Completed", 0) >= JOBS // 4, counted
        support.wait_until(lambda: not list(_user_pids(marker.encode())), what="user processes are left over")
        support.wait_until(lambda: not list(_runner_pids(platform.home)), what="runners are left over")
    finally:
        client.close()
        objects.close()
        support.stop_platform(platform.home.path)
    left = list(_processes_of(platform.home.path))
    assert left == []
    assert list(_users_of(platform.home.path)) == []


def _await_ends(client: Any, killer: Killer) -> None:
    """Wait until all jobs have ended; the last ones come home in peace, so that this test ends."""
    ended: set[str] = set()
    deadline = time.monotonic() + 480
    while len(ended) < JOBS:
        assert time.monotonic() < deadline, f"only {len(ended)} of {JOBS} jobs have ended; {killer.kills}"
        time.sleep(0.3)
        for phase in ("Completed", "Failed"):
            ended |= {job.name for job in _insist(lambda p=phase: client.jobs(phase=p, limit=JOBS))}
        if len(ended) >= JOBS * 0.8:
            killer.stop.set()


def _make_bucket(platform: Any) -> None:
    result = platform.cli("obs", "mb", "survival")
    assert result.exit_code == 0, result.output


def _check_job(client: Any, objects: ObjectClient, name: str) -> str:
    """What the job's record says must be what its own notes say."""
    job = _insist(lambda: client.get(name))
    phase = Phase(job.phase)
    assert phase in (Phase.COMPLETED, Phase.FAILED), f"{name} ended as {phase}"
    keys = [entry.key for entry in objects.walk("survival", f"{name}/")]
    attempts = _insist(lambda: client.attempts(name))
    for attempt in attempts:
        starts = [key for key in keys if f"/start-{attempt.attempt}-" in key]
        assert len(starts) <= 1, f"attempt {attempt.attempt} of {name} ran {len(starts)} times"
        log = _insist(lambda a=attempt.attempt: b"".join(client.logs(name, attempt=a)))
        numbers = [
            int(n) for n in re.findall(rb"^line (\d+) of attempt %d$" % attempt.attempt, log, re.MULTILINE)
        ]
        assert numbers == list(range(len(numbers))), f"{name}: the log has a gap"
        key = next((key for key in keys if key.endswith(f"/count-{attempt.attempt}")), None)
        if key is not None:
            written = int(objects.read("survival", key) or 0)
            assert len(numbers) >= written, f"{name}: {written - len(numbers)} lines are missing from the log"
        is_last = attempt.attempt == attempts[-1].attempt
        assert (b"\ndone\n" in b"\n" + log) or not (is_last and phase is Phase.COMPLETED)
    return phase


def _users_of(home: Path) -> Iterator[tuple[int, str]]:
    """Processes that still have a file of the platform open, whatever they are called."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            for target in _open_files(int(entry.name), home):
                yield int(entry.name), target


def _open_files(pid: int, home: Path) -> Iterator[str]:
    """The files of the platform that a process has open; none of one that is gone."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith(str(home)):
            yield target


def _processes_of(home: Path) -> Iterator[tuple[int, bytes]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(home).encode() in command:
                yield int(entry.name), command
