"""Every database test runs on the embedded database and on a real PostgreSQL."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from trainshed.db.engine import open_engine
from trainshed.db.migrations import upgrade


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    assert path, f"PostgreSQL's {name} is needed for the database tests: install the package `postgresql`"
    return path


def _as_server_user(*command: str) -> None:
    # PostgreSQL refuses to run as root.
    options = {"user": pwd.getpwnam("postgres").pw_uid, "group": pwd.getpwnam("postgres").pw_gid}
    subprocess.run(
        command,
        check=True,
        timeout=60,
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
        _as_server_user(
            _program("initdb"), "-D", str(data), "-U", "trainshed", "-A", "trust", "-N", "-E", "UTF8"
        )
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        log = str(folder / "log")
        _as_server_user(_program("pg_ctl"), "start", "-w", "-D", str(data), "-l", log, "-o", options)
        try:
            yield str(folder)
        finally:
            _as_server_user(_program("pg_ctl"), "stop", "-w", "-D", str(data), "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """A database of its own on that server."""
    name = f"t{uuid.uuid4().hex}"
    admin = open_engine(f"postgresql://trainshed@/postgres?host={postgres_server}")
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return f"postgresql://trainshed@/{name}?host={postgres_server}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'db.sqlite'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with all tables."""
    engine = open_engine(database_url)
    upgrade(engine)
    yield engine
    engine.dispose()
