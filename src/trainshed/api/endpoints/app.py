"""The ASGI application of hosted tools: who may see which, and a proxy to the sandbox in which it runs.

It has an origin of its own (another port than the console's), because what a tool shows was written by a job. A
visitor comes with a link that works once and gets a cookie for this one tool; the console's session cookie and
any Authorization that a browser sends along end here.
"""

from __future__ import annotations

import asyncio
import re
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

from trainshed.api.endpoints.pages import failed_page, refused_page, starting_page
from trainshed.api.endpoints.proxy import ToolProxy
from trainshed.model.errors import NotAuthenticated, TrainshedError
from trainshed.services.platform import Platform
from trainshed.services.tool_processes import ToolProcesses
from trainshed.services.tool_tickets import COOKIE_SECONDS, Ticket, issue, redeem, require_access, verify

__all__ = ["COOKIE", "create_tools_app"]

COOKIE = "trainshed_tool"
_PATH = re.compile(r"/t/([0-9a-f]{24})(/.*)?", re.DOTALL)
# How long a visitor's rights are believed before they are looked up again.
_BELIEVED_SECONDS = 30.0


def create_tools_app(platform: Platform, processes: ToolProcesses) -> ASGIApp:
    """The application that the server of tools serves."""
    return _ToolsApp(platform, processes)


class _ToolsApp:
    def __init__(self, platform: Platform, processes: ToolProcesses) -> None:
        self._platform = platform
        self._processes = processes
        self._proxy = ToolProxy(processes)
        self._believed: dict[tuple[str, str], float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _live(receive, send)
        match = _PATH.fullmatch(scope.get("path", ""))
        if match is None:
            return await self._refuse(scope, receive, send, 404, "There is nothing here.")
        tool = match[1]
        try:
            if scope["type"] == "http" and match[2] in (None, "/"):
                words = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("ticket")
                if words or match[2] is None:
                    return await self._enter(scope, send, tool, words[0] if words else "")
            ticket = await self._admit(scope, tool)
        except NotAuthenticated as fault:
            return await self._refuse(scope, receive, send, 401, str(fault))
        except TrainshedError as fault:
            return await self._refuse(scope, receive, send, fault.status, str(fault))
        state = self._processes.ensure(tool)
        if scope["type"] == "http" and state.stage != "ready":
            page = failed_page(state.message) if state.stage == "failed" else starting_page(state.stage)
            return await page(scope, receive, send)
        with self._processes.use(tool):
            if scope["type"] == "websocket":
                return await self._proxy.talk(scope, receive, send, tool)
            return await self._proxy.answer(scope, receive, send, tool, self._renewal(scope, ticket))

    async def _enter(self, scope: Scope, send: Send, tool: str, word: str) -> None:
        """Exchange the link for a cookie, and go on without it: links stay in histories and logs."""
        headers = [(b"location", f"/t/{tool}/".encode()), (b"cache-control", b"no-store")]
        if word:
            ticket, cookie = await asyncio.to_thread(redeem, self._platform, word, tool)
            await asyncio.to_thread(require_access, self._platform, ticket)
            headers.append((b"set-cookie", self._cookie(scope, tool, cookie)))
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _admit(self, scope: Scope, tool: str) -> Ticket:
        """The visitor's ticket, if the cookie is good and the rights are still there."""
        ticket = verify(self._platform, _read_cookie(scope), "cookie", tool)
        key = (ticket.user_id, tool)
        if self._believed.get(key, 0.0) < time.monotonic():
            await asyncio.to_thread(require_access, self._platform, ticket)
            if len(self._believed) > 10_000:
                self._believed.clear()
            self._believed[key] = time.monotonic() + _BELIEVED_SECONDS
        return ticket

    def _renewal(self, scope: Scope, ticket: Ticket) -> bytes:
        """A new cookie for someone who is still there; empty as long as the old one is young."""
        if ticket.expires_at - self._platform.clock() > COOKIE_SECONDS / 2:
            return b""
        word = issue(
            self._platform,
            "cookie",
            tool=ticket.tool,
            job_id=ticket.job_id,
            workspace_id=ticket.workspace_id,
            user_id=ticket.user_id,
        )
        return self._cookie(scope, ticket.tool, word)

    def _cookie(self, scope: Scope, tool: str, word: str) -> bytes:
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        return (
            f"{COOKIE}={word}; Path=/t/{tool}/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Lax{secure}"
        ).encode()

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, status: int, words: str) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        await refused_page(status, words)(scope, receive, send)


def _read_cookie(scope: Scope) -> str:
    for name, value in scope.get("headers", ()):
        if name == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(COOKIE)
            except CookieError:
                continue
            if found is not None:
                return found.value
    return ""


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
