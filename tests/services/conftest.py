"""A platform without processes, on both databases, and people to call it."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from trainshed.db import jobs as db_jobs
from trainshed.db.engine import begin, read
from trainshed.db.nodes import replace_nodes
from trainshed.model.code_digest import digest_code
from trainshed.model.flavor import Device, Node
from trainshed.model.home import Home
from trainshed.model.job_spec import parse_job_spec
from trainshed.model.phase import Phase
from trainshed.model.settings import Settings
from trainshed.services import code, jobs, users, workspaces
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform, open_platform
from trainshed.services.setup import first_start
from trainshed.services.tokens import issue_token


@dataclass
class Clock:
    """A clock that tests move."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The platform's clock."""
    return Clock()


@pytest.fixture
def platform(home: Home, migrated_database_url: str, clock: Clock) -> Iterator[Platform]:
    """A platform that was started for the first time, with one machine of 4 cores and 8 pretend devices."""
    opened = open_platform(home, Settings(database_url=migrated_database_url))
    platform = dataclasses.replace(opened, clock=clock)
    with begin(platform.engine) as connection:
        devices = tuple(Device("ascend", index, pretend=True) for index in range(8))
        replace_nodes(connection, "local", [Node("host", "default", 4, 16384, devices)])
    yield platform
    platform.close()


@pytest.fixture
def admin(platform: Platform) -> Caller:
    """The administrator that the first start makes."""
    made = first_start(platform)
    assert made is not None
    return authenticate_token(platform, made.token)


@pytest.fixture
def make_caller(platform: Platform, admin: Caller) -> Callable[..., Caller]:
    """Makes a user with a role in a workspace of that name, and signs them in."""

    def make(name: str, role: str = "developer", workspace: str = "default", **token: Any) -> Caller:
        if name not in {user.name for user in users.list_users(platform, admin)}:
            users.create_user(platform, admin, name)
        if workspace not in {space.name for space in workspaces.list_workspaces(platform, admin)}:
            workspaces.create_workspace(platform, admin, workspace)
        workspaces.set_member(platform, admin, name, role, workspace)
        space = workspaces.get_workspace(platform, admin, workspace)
        user = next(user for user in users.list_users(platform, admin) if user.name == name)
        with begin(platform.engine) as connection:
            made = issue_token(
                connection, platform.clock(), user.id, space.id, "test", token.get("scopes", ["*"]), 1000.0
            )
        return authenticate_token(platform, made.token)

    return make


@pytest.fixture
def ann(make_caller: Callable[..., Caller]) -> Caller:
    """A developer of the workspace `red`."""
    return make_caller("ann", "developer", "red")


@pytest.fixture
def bob(make_caller: Callable[..., Caller]) -> Caller:
    """A manager of another workspace, `blue`."""
    return make_caller("bob", "manager", "blue")


def make_tar(files: dict[str, bytes], mode: str = "w") -> tuple[io.BytesIO, str]:
    """A tar of files and the digest of its content; a name that ends in `!` is executable."""
    buffer = io.BytesIO()
    rows = []
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            executable = name.endswith("!")
            entry = tarfile.TarInfo(name.removesuffix("!"))
            entry.size, entry.mode = len(data), 0o755 if executable else 0o644
            tar.addfile(entry, io.BytesIO(data))
            rows.append((entry.name, executable, hashlib.sha256(data).hexdigest()))
    buffer.seek(0)
    return buffer, digest_code(rows)


@pytest.fixture
def tar() -> Callable[..., tuple[io.BytesIO, str]]:
    """Makes tars of code."""
    return make_tar


@pytest.fixture
def submit(platform: Platform) -> Callable[..., JobView]:
    """Submits a job with uploaded code."""

    def submit(caller: Caller, **fields: Any) -> JobView:
        stream, digest = make_tar({"train.py": b"print(1)\n"})
        code.upload_snapshot(platform, caller, stream, digest)
        spec = {"code": f"snapshot:{digest}", "boot": "train.py", **fields}
        return jobs.submit(platform, caller, parse_job_spec(spec))

    return submit


@pytest.fixture
def advance(platform: Platform) -> Callable[..., None]:
    """Moves a job through phases, as the control loop would."""

    def advance(job_id: str, *phases: Phase, **changes: Any) -> None:
        for phase in phases:
            with begin(platform.engine) as connection:
                row = db_jobs.job_by_id(connection, job_id)
                assert row is not None
                last = changes if phase is phases[-1] else {}
                assert db_jobs.change_job(connection, row, phase=phase, **last)

    return advance


@pytest.fixture
def row_of(platform: Platform) -> Callable[[str], db_jobs.JobRow | None]:
    """The row of a job, whatever became of it."""

    def row_of(job_id: str) -> db_jobs.JobRow | None:
        with read(platform.engine) as connection:
            return db_jobs.job_by_id(connection, job_id)

    return row_of
