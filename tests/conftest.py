"""Fixtures that every room's tests may use."""

from __future__ import annotations

import json
import os
import pwd
import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from trainshed.model.home import Home

if TYPE_CHECKING:
    from trainshed import Client

REPOSITORY = Path(__file__).resolve().parent.parent

# How long an example takes says more about the machine than about the code.
settings.register_profile("patient", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("patient")

# How each test that passed at its second try only had failed at its first.
FIRST_FAILURES: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--second-try", action="store_true", help="try a slow test once more if it fails, and tell so"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("second_try"):
        return
    for item in items:
        if item.get_closest_marker("slow") or item.get_closest_marker("training"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome == "rerun":
        FIRST_FAILURES[report.nodeid] = report.longreprtext


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, failure in FIRST_FAILURES.items():
        terminalreporter.section(f"tried twice: {name}")
        terminalreporter.write_line(failure)


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
    timeout: float = 150.0,
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
    """A port of loopback that nobody uses at this moment.

    It is bound a moment later: each of pytest's workers has ports of its own to look at, below those that the
    kernel gives out by itself.
    """
    from trainshed.daemon.preflight import is_port_free

    lane = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw") or 0) % 4
    while True:
        port = 24000 + lane * 2000 + random.SystemRandom().randrange(2000)
        if port not in _given and is_port_free("127.0.0.1", port):
            _given.add(port)
            return port


# Ports that were asked for are not given out twice, also while nobody listens on them yet.
_given: set[int] = set()


def wait_until(claim: Callable[[], Any], *, seconds: float = 120.0, what: str = "") -> Any:
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
        arguments += ["--port", str(free_port()), "--obs-port", str(free_port())]
    result = run_cli(*arguments, environment=environment)
    assert result.exit_code == 0, result.output
    home = Home(path)
    saved = json.loads(home.client.read_bytes())
    return RunningPlatform(home, saved["url"], saved["obs_url"], saved["token"])


def stop_platform(path: Path) -> None:
    """Stop the platform of that home, if it runs."""
    result = run_cli("down", "--home", path)
    assert result.exit_code == 0, result.output


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home folder that is empty yet."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return Home(path)


@pytest.fixture(scope="module")
def platform_up(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningPlatform]:
    """A real platform, one for the tests of a module; indirect parameters are options of `trainshed up`."""
    path = tmp_path_factory.mktemp("platform") / "home"
    try:
        yield start_platform(path, *getattr(request, "param", ()))
    finally:
        stop_platform(path)


@pytest.fixture(scope="session")
def support() -> Any:
    """This module: its functions (`run_cli`, `start_platform`, `wait_until`…) for tests that need them."""
    return sys.modules[__name__]


# --- databases: every test that uses `database_url` runs on SQLite and on a real PostgreSQL ---


def _postgres_program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    assert path, f"PostgreSQL's {name} is needed for the database tests: install the package `postgresql`"
    return path


def _as_postgres_user(*command: str) -> None:
    # PostgreSQL refuses to run as root.
    options = {"user": pwd.getpwnam("postgres").pw_uid, "group": pwd.getpwnam("postgres").pw_gid}
    subprocess.run(
        command,
        check=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        **(options if os.getuid() == 0 else {}),
    )


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The socket folder of a PostgreSQL server that lives as long as the tests."""
    folder = Path(tempfile.mkdtemp(prefix="trainshed-pg-"))
    data = folder / "data"
    if os.getuid() == 0:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    try:
        _as_postgres_user(
            _postgres_program("initdb"), "-D", str(data), "-U", "trainshed", "-A", "trust", "-N", "-E", "UTF8"
        )
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        log = str(folder / "log")
        _as_postgres_user(
            _postgres_program("pg_ctl"), "start", "-w", "-D", str(data), "-l", log, "-o", options
        )
        try:
            yield str(folder)
        finally:
            _as_postgres_user(_postgres_program("pg_ctl"), "stop", "-w", "-D", str(data), "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A database of its own on that server."""
    from sqlalchemy import text

    from trainshed.db.engine import open_engine

    name = f"t{uuid.uuid4().hex}"
    admin = open_engine(f"postgresql://trainshed@/postgres?host={postgres_server}")
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield f"postgresql://trainshed@/{name}?host={postgres_server}"
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'db.sqlite'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(scope="session")
def migrated_postgres_url(postgres_server: str) -> str:
    """A database with all tables, made once."""
    from sqlalchemy import text

    from trainshed.db.engine import open_engine
    from trainshed.db.migrations import upgrade

    server = open_engine(f"postgresql://trainshed@/postgres?host={postgres_server}")
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CREATE DATABASE migrated"))
    server.dispose()
    url = f"postgresql://trainshed@/migrated?host={postgres_server}"
    engine = open_engine(url)
    upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind with all tables and no rows. (Emptying one is quicker than making one.)"""
    from sqlalchemy import text

    from trainshed.db.engine import begin, open_engine
    from trainshed.db.tables import metadata

    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'db.sqlite'}"
    url: str = request.getfixturevalue("migrated_postgres_url")
    engine = open_engine(url)
    with begin(engine) as connection:
        names = ", ".join(table.name for table in metadata.sorted_tables)
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
    engine.dispose()
    return url
