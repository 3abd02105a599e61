"""Hosted tools behind their proxy: who gets in, and what passes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

import httpx
import pytest

from trainshed.api.endpoints.app import COOKIE, create_tools_app
from trainshed.db.attempts import AttemptRow, insert_attempt
from trainshed.db.engine import begin
from trainshed.db.nodes import replace_nodes
from trainshed.model.flavor import Node
from trainshed.model.home import Home
from trainshed.model.job_spec import parse_job_spec
from trainshed.model.settings import Settings
from trainshed.model.tool import ToolState
from trainshed.services import jobs, users, workspaces
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.platform import Platform, open_platform
from trainshed.services.setup import first_start
from trainshed.services.tool_processes import ToolProcesses
from trainshed.services.tool_tickets import issue, redeem, revoke, verify

TOOL = "a" * 24
OTHER = "b" * 24


class _Ready(ToolProcesses):
    """Tools whose sockets the test itself serves."""

    state = ToolState("ready")

    def ensure(self, tool: str) -> ToolState:
        return self.state


class _Echo(BaseHTTPRequestHandler):
    """Tells what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Upgrade") == "websocket":
            self._talk()
            return
        body = json.dumps({"path": self.path, "headers": dict(self.headers.items())}).encode()
        self._answer(body)

    def do_POST(self) -> None:
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self._answer(json.dumps({"sent": data.decode()}).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(302 if "move" in self.path else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "trainshed_session=stolen; Path=/")
        self.send_header("Service-Worker-Allowed", "/")
        if "move" in self.path:
            self.send_header("Location", "https://elsewhere.example/t/x")
        self.end_headers()
        self.wfile.write(body)

    def _talk(self) -> None:
        key = self.headers["Sec-WebSocket-Key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        self.wfile.write(b"\x89\x02hi")
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            kind, size = head[0] & 15, head[1] & 127
            if size == 126:
                (size,) = struct.unpack("!H", self.rfile.read(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self.rfile.read(8))
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[index % 4] for index, byte in enumerate(self.rfile.read(size)))
            if kind == 8:
                return
            if kind == 10:
                continue
            reply = b"echo " + data
            long = struct.pack("!BBH", 128 | kind, 126, len(reply))
            head = struct.pack("!BB", 128 | kind, len(reply)) if len(reply) < 126 else long
            self.wfile.write(head + reply)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def platform(home: Home) -> Iterator[Platform]:
    """A platform without processes."""
    opened = open_platform(home, Settings())
    yield opened
    opened.close()


@pytest.fixture
def ann(platform: Platform) -> Caller:
    """The administrator."""
    made = first_start(platform)
    assert made is not None
    return authenticate_token(platform, made.token)


@pytest.fixture
def job_id(platform: Platform, ann: Caller) -> str:
    """A job of theirs."""
    with begin(platform.engine) as connection:
        replace_nodes(connection, "local", [Node("host", "default", 4, 16384, ())])
    platform.store.create_bucket("codes", ann.workspace_id)
    platform.store.put("codes", "a/train.py", b"print(1)")
    spec = parse_job_spec({"code": "obs://codes/a/", "boot": "train.py", "name": "job"})
    view = jobs.submit(platform, ann, spec)
    with begin(platform.engine) as connection:
        insert_attempt(connection, AttemptRow(view.id, 1, "local", [{"node": "host"}], "running", 1.0))
    return view.id


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[_Ready]:
    """A tool that answers, and one whose socket is a link to it."""
    root = tmp_path / "tools"
    for tool in (TOOL, OTHER):
        (root / tool / "socket").mkdir(parents=True)
    os.chdir(root / TOOL / "socket")
    server = _Server("tool.sock", _Echo)
    os.symlink(root / TOOL / "socket" / "tool.sock", root / OTHER / "socket" / "tool.sock")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield _Ready(root, 60)
    server.shutdown()
    server.server_close()
    thread.join()
    os.chdir(tmp_path)


Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask(platform: Platform, processes: _Ready) -> Ask:
    """Sends a request as a browser does."""
    app = create_tools_app(platform, processes)

    def send(path: str, method: str = "GET", cookie: str = "", **more: Any) -> httpx.Response:
        headers = {**({"Cookie": cookie} if cookie else {}), **more.pop("headers", {})}

        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://tools.test") as client:
                return await client.request(method, path, headers=headers, **more)

        return asyncio.run(once())

    return send


@pytest.fixture
def link(platform: Platform, ann: Caller, job_id: str) -> Callable[..., str]:
    """Makes a link or a cookie."""

    def make(kind: Any = "link", tool: str = TOOL, user_id: str = "") -> str:
        return issue(
            platform,
            kind,
            tool=tool,
            job_id=job_id,
            workspace_id=ann.workspace_id,
            user_id=user_id or ann.user_id,
        )

    return make


def test_a_link_works_once_and_becomes_a_cookie_for_this_tool_alone(
    ask: Ask, link: Callable[..., str]
) -> None:
    word = link()
    answer = ask(f"/t/{TOOL}/?ticket={word}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/t/{TOOL}/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=") and f"Path=/t/{TOOL}/;" in cookie
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Max-Age=3600" in cookie
    assert ask(f"/t/{TOOL}/?ticket={word}").status_code == 401
    value = cookie.partition(";")[0]
    assert ask(f"/t/{TOOL}/data", cookie=value).status_code == 200
    assert ask(f"/t/{OTHER}/data", cookie=value).status_code == 401


def test_who_has_no_cookie_or_a_forged_one_sees_nothing(ask: Ask, link: Callable[..., str]) -> None:
    good = link("cookie")
    body, _, signature = good.partition(".")
    forged = base64.urlsafe_b64encode(
        base64.urlsafe_b64decode(body + "==").replace(TOOL.encode(), OTHER.encode())
    ).decode()
    for cookie in ("", f"{COOKIE}=x", f"{COOKIE}={body}.{signature[:-1]}0", f"{COOKIE}={link()}", "a=;;="):
        answer = ask(f"/t/{TOOL}/", cookie=cookie)
        assert answer.status_code == 401 and "not shown" in answer.text, cookie
    assert ask(f"/t/{OTHER}/", cookie=f"{COOKIE}={forged}.{signature}").status_code == 401
    for path in ("/", "/t/", "/t/../x", f"/t/{TOOL}x/", "/api/v1/jobs"):
        assert ask(path, cookie=f"{COOKIE}={good}").status_code in (401, 404)


def test_identity_stays_outside_and_cookies_inside(ask: Ask, link: Callable[..., str]) -> None:
    cookie = f"trainshed_session=secret; {COOKIE}={link('cookie')}"
    answer = ask(
        f"/t/{TOOL}/data/%2Fx?tag=a%20b",
        cookie=cookie,
        headers={"Authorization": "Bearer tsh_x", "X-Forwarded-For": "1.2.3.4", "Accept": "text/plain"},
    )
    seen = answer.json()
    assert seen["path"] == f"/t/{TOOL}/data/%2Fx?tag=a%20b"
    names = {name.lower() for name in seen["headers"]}
    assert names.isdisjoint({"cookie", "authorization", "x-forwarded-for", "referer"})
    assert seen["headers"]["host"] == "localhost" and seen["headers"]["accept"] == "text/plain"
    assert "set-cookie" not in answer.headers and "service-worker-allowed" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ask(f"/t/{TOOL}/move", cookie=cookie).headers["location"] == f"/t/{TOOL}/"
    posted = ask(f"/t/{TOOL}/post", "POST", cookie=cookie, content=b"x" * 100_000)
    assert posted.json() == {"sent": "x" * 100_000}


def test_a_socket_that_is_a_link_is_not_followed(ask: Ask, link: Callable[..., str]) -> None:
    answer = ask(f"/t/{OTHER}/data", cookie=f"{COOKIE}={link('cookie', OTHER)}")
    assert answer.status_code == 503 and "starting" in answer.text


def test_until_it_is_ready_a_page_says_so(ask: Ask, link: Callable[..., str], processes: _Ready) -> None:
    cookie = f"{COOKIE}={link('cookie')}"
    processes.state = ToolState("installing")
    answer = ask(f"/t/{TOOL}/", cookie=cookie)
    assert answer.status_code == 503 and "being installed" in answer.text and "refresh" in answer.text
    processes.state = ToolState("failed", "<b>no</b>")
    answer = ask(f"/t/{TOOL}/", cookie=cookie)
    assert answer.status_code == 502 and "&lt;b&gt;no" in answer.text


def test_whoever_loses_their_rights_or_the_job_sees_it_no_longer(
    ask: Ask, link: Callable[..., str], platform: Platform, ann: Caller, job_id: str
) -> None:
    users.create_user(platform, ann, "bob")
    bob = next(user for user in users.list_users(platform, ann) if user.name == "bob")
    assert ask(f"/t/{TOOL}/x", cookie=f"{COOKIE}={link('cookie', user_id=bob.id)}").status_code == 401
    workspaces.set_member(platform, ann, "bob", "viewer", "default")
    assert ask(f"/t/{TOOL}/x", cookie=f"{COOKIE}={link('cookie', user_id=bob.id)}").status_code == 200
    assert ask(f"/t/{TOOL}/?ticket={link(user_id='nobody')}").status_code == 401


def test_a_stop_takes_all_words_back(platform: Platform, link: Callable[..., str]) -> None:
    before = link("cookie"), link()
    assert verify(platform, before[0], "cookie", TOOL).tool == TOOL
    revoke(platform, TOOL)
    for word, kind in zip(before, ("cookie", "link"), strict=True):
        with pytest.raises(Exception, match="taken back"):
            verify(platform, word, kind, TOOL)  # type: ignore[arg-type]
    assert redeem(platform, link(), TOOL)[0].tool == TOOL


def test_a_websocket_passes_in_both_directions(
    platform: Platform, processes: _Ready, link: Callable[..., str]
) -> None:
    app = create_tools_app(platform, processes)

    async def talk(cookie: str) -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for message in (
            {"type": "websocket.connect"},
            {"type": "websocket.receive", "text": "héllo"},
            {"type": "websocket.receive", "bytes": b"\x00" * 300},
        ):
            waiting.put_nowait(message)

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) == 3:
                waiting.put_nowait({"type": "websocket.disconnect", "code": 1000})

        scope = {
            "type": "websocket",
            "path": f"/t/{TOOL}/socket",
            "query_string": b"a=1",
            "headers": [(b"cookie", cookie.encode())],
        }
        await asyncio.wait_for(app(scope, waiting.get, send), 10)
        return sent

    refused = asyncio.run(talk("nothing"))
    assert refused == [{"type": "websocket.close", "code": 1008}]
    heard = asyncio.run(talk(f"{COOKIE}={link('cookie')}"))
    assert heard[0]["type"] == "websocket.accept"
    assert heard[1] == {"type": "websocket.send", "text": "echo héllo"}
    assert heard[2] == {"type": "websocket.send", "bytes": b"echo " + b"\x00" * 300}
