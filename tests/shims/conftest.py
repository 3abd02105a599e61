"""Scripts that use the stand-in packages, on old and new interpreters, inside and outside of a job."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import store_server
from trainshed.model.errors import NotFound
from trainshed.model.settings import Settings
from trainshed.runner.broker import Broker
from trainshed.runner.environment.interpreter import find_interpreter
from trainshed.runner.sandbox.stage import Binding
from trainshed.runner.shims import shims_folder
from trainshed.services.identity import authenticate_token
from trainshed.services.platform import open_platform
from trainshed.store import open_store
from trainshed.store.object_store import ObjectStore

server = store_server.server


@dataclass
class World:
    """Somewhere to run a script: an interpreter, variables that lead to a store, and a folder of its own."""

    python: str
    variables: dict[str, str]
    folder: Path
    store: ObjectStore
    bucket: str
    way: str

    def run(self, script: str, *arguments: str, **variables: str) -> str:
        """Run a script that knows `mox`, `here` (its folder) and `there` (the URL of a folder); its output."""
        here = f"here, there = {str(self.folder)!r}, 'obs://{self.bucket}/tests'"
        program = f"import os, moxing as mox\n{here}\n{textwrap.dedent(script)}"
        done = subprocess.run(
            [self.python, "-W", "error", "-c", program, *arguments],
            env={
                "PYTHONPATH": str(shims_folder()),
                "PATH": os.environ["PATH"],
                **self.variables,
                **variables,
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def content(self, key: str) -> bytes:
        """The bytes of an object below `there`."""
        with self.store.open(self.bucket, f"tests/{key}") as file:
            return file.read()

    def put(self, key: str, data: bytes) -> None:
        """Store an object below `there`."""
        self.store.put(self.bucket, f"tests/{key}", data)

    def keys(self) -> list[str]:
        """What lies below `there`."""
        return [info.key[len("tests/") :] for info in self.store.walk(self.bucket, "tests/")]


def find_python(version: str) -> str:
    """An interpreter of that version, or the one of these tests where the machine has no such."""
    try:
        return str(find_interpreter(version).executable)
    except NotFound:
        return sys.executable


@pytest.fixture(
    params=[
        ("broker", ""),
        ("http", "3.7"),
        pytest.param(("broker", "3.7"), marks=pytest.mark.slow),
        pytest.param(("http", "3.13"), marks=pytest.mark.slow),
    ],
    ids=lambda param: f"{param[0]}-{param[1] or 'own'}",
)
def world(request: pytest.FixtureRequest, tmp_path: Path, server: Any) -> Iterator[World]:
    """A place to run scripts: as in a job, by the broker, and as anywhere else, over HTTP with access keys."""
    way, version = request.param
    yield from make_world(way, find_python(version) if version else sys.executable, tmp_path, server)


def make_world(way: str, python: str, tmp_path: Path, server: Any) -> Iterator[World]:
    folder = tmp_path / "job"
    folder.mkdir()
    store = open_store(f"file://{server.home.store}")
    pair = server.keys["dev"]
    workspace = _workspace_of(server)
    bucket = f"bucket-{os.urandom(4).hex()}"
    store.create_bucket(bucket, workspace)
    broker = None
    try:
        if way == "broker":
            broker = Broker(tmp_path / "broker.sock")
            broker.start([Binding(str(folder), str(folder), True)], lambda: store, workspace)
            variables = {"TRAINSHED_BROKER": str(tmp_path / "broker.sock")}
        else:
            variables = {
                "S3_ENDPOINT": f"127.0.0.1:{server.port}",
                "S3_USE_HTTPS": "0",
                "ACCESS_KEY_ID": pair.access_key,
                "SECRET_ACCESS_KEY": pair.secret_key,
            }
        yield World(python, variables, folder, store, bucket, way)
    finally:
        if broker is not None:
            broker.close()
        store.close()


def _workspace_of(server: Any) -> str:
    platform = open_platform(server.home, Settings())
    try:
        return authenticate_token(platform, server.token).workspace_id
    finally:
        platform.close()
