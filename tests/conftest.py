"""Fixtures that every room's tests may use."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainshed.model.home import Home

if TYPE_CHECKING:
    from trainshed import Client

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class CliResult:
    """What a run of the `trainshed` command gave back."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both streams, for messages of failing assertions."""
        return self.stdout + self.stderr

    def json(self) -> Any:
        """The JSON that the command printed."""
        return json.loads(self.stdout)


def run_cli(
    *arguments: str | Path,
    home: Path | Home | None = None,
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60.0,
    python: str = sys.executable,
) -> CliResult:
    """Run the real `trainshed` command in a process of its own."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")}
    if home is not None:
        variables["TRAINSHED_HOME"] = str(home.path if isinstance(home, Home) else home)
    variables.update(environment or {})
    done = subprocess.run(
        [python, "-m", "trainshed.cli.main", *map(str, arguments)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=variables,
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())


def free_port() -> int:
    """A port of loopback that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(claim: Callable[[], Any], *, seconds: float = 30.0, what: str = "") -> Any:
    """Wait until the claim is true and return what it returned; fail after the given time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = claim()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what or claim}")
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass(frozen=True)
class RunningPlatform:
    """A real platform that was started for tests."""

    home: Home
    url: str
    obs_url: str
    token: str

    def cli(self, *arguments: str | Path, **options: Any) -> CliResult:
        """Run the `trainshed` command against this platform."""
        return run_cli(*arguments, home=self.home, **options)

    def client(self) -> Client:
        """A Python client of this platform, as its administrator."""
        from trainshed import Client

        return Client(self.url, self.token)

    def pids(self) -> dict[str, int]:
        """The process ids of the platform's parts."""
        state = json.loads(self.home.state.read_bytes())
        return {"supervisor": state["pid"], **{part["name"]: part["pid"] for part in state["processes"]}}


def start_platform(path: Path, *options: str, environment: dict[str, str] | None = None) -> RunningPlatform:
    """Start a platform in that home, in the background, on free ports."""
    arguments = ["up", "--home", str(path), "--detach", *options]
    if "--port" not in options:
        arguments += ["--port", "0", "--obs-port", "0"]
    result = run_cli(*arguments, environment=environment, timeout=90)
    assert result.exit_code == 0, result.output
    home = Home(path)
    saved = json.loads(home.client.read_bytes())
    return RunningPlatform(home, saved["url"], saved["obs_url"], saved["token"])


def stop_platform(path: Path) -> None:
    """Stop the platform of that home, if it runs."""
    result = run_cli("down", "--home", path, timeout=60)
    assert result.exit_code == 0, result.output


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home folder that is empty yet."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return Home(path)


@pytest.fixture(scope="module")
def platform_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    """A real platform, one for the tests of a module."""
    path = tmp_path_factory.mktemp("platform") / "home"
    try:
        yield start_platform(path)
    finally:
        stop_platform(path)


@pytest.fixture(scope="session")
def support() -> Any:
    """This module: its functions (`run_cli`, `start_platform`, `wait_until`…) for tests that need them."""
    return sys.modules[__name__]
