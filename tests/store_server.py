"""Shared by several rooms: a real store process, with two workspaces that know nothing of each other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from trainshed.daemon.preflight import find_free_port
from trainshed.db.engine import begin
from trainshed.model.home import Home
from trainshed.model.settings import Settings
from trainshed.services.access_keys import KeyPair, issue_access_key
from trainshed.services.identity import authenticate_token
from trainshed.services.platform import open_platform
from trainshed.services.setup import first_start
from trainshed.services.tokens import issue_token
from trainshed.services.users import create_user
from trainshed.services.workspaces import create_workspace, set_member


@dataclass
class StoreServer:
    """The address of a store process, and tokens for it."""

    port: int
    home: Home
    process: subprocess.Popen[bytes]
    token: str
    viewer: str
    stranger: str
    # Access keys of the same users: dev, viewer, stranger.
    keys: dict[str, KeyPair]

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Stop the process."""
        self.process.terminate()
        self.process.wait(timeout=120)

    def restart(self) -> None:
        """Kill the process at once, and start another one in its place."""
        self.process.kill()
        self.process.wait(timeout=120)
        self.process = start_server(self.home, self.port)

    def environment(self) -> dict[str, str]:
        """The variables that lead the command line here."""
        return {"TRAINSHED_URL": self.url, "TRAINSHED_OBS_URL": self.url, "TRAINSHED_TOKEN": self.token}

    def cli(self, *arguments: str | Path, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run the real `trainshed obs` command against this process."""
        return subprocess.run(
            [sys.executable, "-m", "trainshed.cli.main", "obs", *map(str, arguments)],
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            env={**os.environ, **self.environment()},
            timeout=120,
            check=False,
        )

    def http(self, token: str | None = None) -> httpx.Client:
        """A plain HTTP client with a token."""
        chosen = self.token if token is None else token
        return httpx.Client(
            base_url=self.url + "/_/v1", headers={"Authorization": f"Bearer {chosen}"}, timeout=120
        )


def start_server(
    home: Home, port: int, program: Sequence[str] = (sys.executable, "-m", "trainshed.daemon.store_process")
) -> subprocess.Popen[bytes]:
    """Start the store process and wait until it answers."""
    environment = {**os.environ, "TRAINSHED_OBS_PORT": str(port), "TRAINSHED_HOST": "127.0.0.1"}
    process = subprocess.Popen([*program, "--home", str(home.path)], env=environment)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200:
                return process
        except httpx.HTTPError:
            time.sleep(0.05)
    process.kill()
    process.wait()
    raise AssertionError("the store process did not answer")


def make_server(path: Path) -> StoreServer:
    """A new home with users, and a store process that serves it. The caller stops it."""
    home = Home(path)
    platform = open_platform(home, Settings())
    made = first_start(platform)
    assert made is not None
    admin = authenticate_token(platform, made.token)
    other = create_workspace(platform, admin, "other")
    tokens, keys = {}, {}
    for name, workspace, role in (
        ("dev", admin.workspace_id, "developer"),
        ("viewer", admin.workspace_id, "viewer"),
        ("stranger", other.id, "developer"),
    ):
        user = create_user(platform, admin, name)
        set_member(platform, admin, name, role, workspace)
        with begin(platform.engine) as connection:
            tokens[name] = issue_token(
                connection, time.time(), user.id, workspace, "test", ["*"], 3600.0
            ).token
            keys[name] = issue_access_key(platform, connection, user.id, workspace, "test")
    platform.close()
    # Not one that an outgoing connection may have when the process is started, or comes back, there.
    port = find_free_port("127.0.0.1")
    process = start_server(home, port)
    return StoreServer(port, home, process, tokens["dev"], tokens["viewer"], tokens["stranger"], keys)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """A running store process, one for the tests of a module."""
    server = make_server(tmp_path_factory.mktemp("home"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def blobs(server: StoreServer) -> Path:
    """The folder of blob files of the running store."""
    return server.home.store / "blobs"
