"""The console on a real platform without processes; jobs are inserted as the control loop would leave them."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from trainshed.console.app import create_console
from trainshed.db.attempts import AttemptRow, insert_attempt
from trainshed.db.engine import begin, read
from trainshed.db.events import add_event
from trainshed.db.jobs import JobRow, insert_job, job_by_id
from trainshed.db.nodes import replace_nodes
from trainshed.model.flavor import Device, Node
from trainshed.model.home import Home
from trainshed.model.phase import Phase
from trainshed.model.settings import Settings
from trainshed.services import users, workspaces
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.platform import Platform, open_platform
from trainshed.services.sessions import create_login_link
from trainshed.services.setup import first_start

HOST = "http://console.test"
TRANSLATIONS = Path(__file__).resolve().parents[2] / "scripts" / "translations.py"
SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'


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
def platform(home: Home, clock: Clock) -> Iterator[Platform]:
    """A platform with one machine of 4 cores and 8 pretend devices."""
    platform = dataclasses.replace(open_platform(home, Settings()), clock=clock)
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


class InProcess(httpx.BaseTransport):
    """Hands each request to an ASGI application, without a server between."""

    def __init__(self, app: Any) -> None:
        self._inner = httpx.ASGITransport(app, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Ask the application and wait for its whole answer."""

        async def ask() -> httpx.Response:
            answer = await self._inner.handle_async_request(request)
            return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())

        return asyncio.run(ask())


class Browser(httpx.Client):
    """A browser without scripts: keeps cookies, sends its origin with forms, does not follow redirects."""

    def __init__(self, platform: Platform) -> None:
        super().__init__(transport=InProcess(create_console(platform)), base_url=HOST)

    def send_form(self, path: str, values: dict[str, str], origin: str = HOST) -> Any:
        """Send a form."""
        return self.post(path, data=values, headers={"Origin": origin} if origin else {})

    def csrf(self) -> str:
        """The token that the pages of this session carry."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("/jobs").text)
        assert found is not None
        return found[1]

    def act(self, path: str, **values: str) -> Any:
        """Send a form of the session."""
        return self.send_form(path, {"csrf": self.csrf(), **values})


@pytest.fixture
def open_browser(platform: Platform, admin: Caller) -> Iterator[Callable[[str], Browser]]:
    """Opens browsers; with a user's name, signed in as that user."""
    opened: list[Browser] = []

    def open_one(user: str = "") -> Browser:
        browser = Browser(platform)
        opened.append(browser)
        if user:
            code = create_login_link(platform, admin, user)
            assert browser.send_form("/login", {"code": code}).status_code == 303
        return browser

    yield open_one
    for browser in opened:
        browser.close()


@pytest.fixture
def browser(open_browser: Callable[[str], Browser]) -> Browser:
    """A browser in which the administrator is signed in."""
    return open_browser("admin")


@pytest.fixture
def make_user(platform: Platform, admin: Caller) -> Callable[..., None]:
    """Makes a user with a role in a workspace."""

    def make(name: str, role: str, workspace: str = "default", password: str = "") -> None:
        users.create_user(platform, admin, name, password)
        if workspace not in {space.name for space in workspaces.list_workspaces(platform, admin)}:
            workspaces.create_workspace(platform, admin, workspace)
        workspaces.set_member(platform, admin, name, role, workspace)

    return make


@dataclass
class Jobs:
    """Inserts jobs as the control loop would leave them."""

    platform: Platform
    caller: Caller
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def add(self, name: str = "", phase: Phase = Phase.COMPLETED, **more: Any) -> JobRow:
        """A job in a phase; one that was started has an attempt and a run folder."""
        number = next(self.numbers)
        now = self.platform.clock()
        started = phase not in (Phase.CREATING, Phase.PENDING)
        values = {
            "id": f"{number:032x}",
            "workspace_id": self.caller.workspace_id,
            "name": name or f"job-{number}",
            "owner_id": self.caller.user_id,
            "phase": phase,
            "spec": {"code": "snapshot:0", "boot": "train.py"},
            "flavor": "cpu.1",
            "nodes": 1,
            "created_at": now - 100 + number,
            "queued_at": now - 100 + number,
            "started_at": now - 90 if started else None,
            "ended_at": now - 10 if phase.is_terminal else None,
            "attempt": 1 if started else 0,
        }
        row = JobRow(**(values | more))
        with begin(self.platform.engine) as connection:
            insert_job(connection, row)
            if row.attempt:
                placement = {"node": "host", "devices": [], "cpus": 1.0, "memory_mb": 1024}
                state = "ended" if phase.is_terminal else "running"
                placements = [placement] * row.nodes
                insert_attempt(
                    connection, AttemptRow(row.id, row.attempt, "local", placements, state, now, now)
                )
        return row

    def write_log(self, row: JobRow, data: bytes, rank: int = 0) -> None:
        """What a rank printed."""
        path = self.platform.home.run_folder(row.id, row.attempt, 0).rank_log(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def write_metrics(self, row: JobRow, points: list[dict[str, Any]]) -> None:
        """What the runner read from the log."""
        path = self.platform.home.run_folder(row.id, row.attempt, 0).metrics
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(point) + "\n" for point in points))

    def tell(self, row: JobRow, message: str, level: str = "info", source: str = "control") -> None:
        """Add to the job's story."""
        with begin(self.platform.engine) as connection:
            add_event(connection, row.id, self.platform.clock(), level, source, message)

    def row(self, row: JobRow) -> JobRow:
        """The job as it is now."""
        with read(self.platform.engine) as connection:
            found = job_by_id(connection, row.id)
        assert found is not None
        return found


@pytest.fixture
def jobs(platform: Platform, admin: Caller) -> Jobs:
    """Jobs of the administrator."""
    return Jobs(platform, admin)


@pytest.fixture
def hostile() -> tuple[str, str]:
    """Text that would run as markup if a page forgot to escape it."""
    return SCRIPT, IMAGE


@pytest.fixture(scope="module")
def translations() -> ModuleType:
    """The script that collects what is to be translated."""
    spec = importlib.util.spec_from_file_location("translations", TRANSLATIONS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
