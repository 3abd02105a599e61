"""Passes requests on to a tool's Unix socket: nothing of the visitor's identity goes in, no cookie comes out."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx
from starlette.types import Receive, Scope, Send

from trainshed.api.endpoints.pages import failed_page, starting_page
from trainshed.api.endpoints.websocket_tunnel import tunnel_websocket
from trainshed.services.tool_processes import ToolProcesses

__all__ = ["ToolProxy"]

_CONNECTION_HEADERS = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# What names the visitor, or would be believed by a tool that trusts proxies.
_PRIVATE_HEADERS = frozenset(
    {
        b"authorization",
        b"cookie",
        b"forwarded",
        b"host",
        b"origin",
        b"referer",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)
# A tool must not reach beyond its own path by what it answers.
_REFUSED_ANSWERS = frozenset(
    {b"set-cookie", b"set-cookie2", b"clear-site-data", b"service-worker-allowed", b"server", b"alt-svc"}
)
_ADDED = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"SAMEORIGIN"),
]
_LARGEST_BODY = 64 << 20


class ToolProxy:
    """Speaks HTTP with tools."""

    def __init__(self, processes: ToolProcesses) -> None:
        self._processes = processes

    async def answer(self, scope: Scope, receive: Receive, send: Send, tool: str, cookie: bytes) -> None:
        """Pass one request on, and its answer back, both as they come."""
        socket = self._processes.open_socket(tool)
        if socket is None:
            return await starting_page("starting")(scope, receive, send)
        started = False
        try:
            transport = httpx.AsyncHTTPTransport(uds=f"/proc/self/fd/{socket}", retries=0)
            timeout = httpx.Timeout(10.0, read=300.0)
            async with httpx.AsyncClient(transport=transport, timeout=timeout) as client:
                # Made by hand: the client would add headers of its own, such as one for compressed answers.
                request = httpx.Request(
                    scope["method"],
                    _target(scope),
                    headers=_outgoing(scope),
                    content=_body(receive) if _has_body(scope) else None,
                    extensions={"timeout": timeout.as_dict()},
                )
                response = await client.send(request, stream=True)
                try:
                    headers = [*_incoming(response, tool), *_ADDED]
                    if cookie:
                        headers.append((b"set-cookie", cookie))
                    start = {
                        "type": "http.response.start",
                        "status": response.status_code,
                        "headers": headers,
                    }
                    started = True
                    await send(start)
                    async for piece in response.aiter_raw():
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                    await send({"type": "http.response.body", "body": b""})
                finally:
                    await response.aclose()
        except (httpx.HTTPError, OSError, ValueError):
            if not started:
                await failed_page("It does not answer. Load the page again.")(scope, receive, send)
        finally:
            os.close(socket)

    async def talk(self, scope: Scope, receive: Receive, send: Send, tool: str) -> None:
        """Pass a WebSocket on."""
        socket = self._processes.open_socket(tool)
        if socket is None:
            await receive()
            await send({"type": "websocket.close", "code": 1013})
            return
        try:
            await tunnel_websocket(scope, receive, send, f"/proc/self/fd/{socket}", _raw_target(scope))
        finally:
            os.close(socket)


def _raw_target(scope: Scope) -> str:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return (path.partition(b"?")[0] + (b"?" + query if query else b"")).decode("latin-1")


def _target(scope: Scope) -> httpx.URL:
    return httpx.URL("http://localhost").copy_with(raw_path=_raw_target(scope).encode("latin-1"))


def _outgoing(scope: Scope) -> list[tuple[bytes, bytes]]:
    dropped = _CONNECTION_HEADERS | _PRIVATE_HEADERS
    # A body is sent in pieces, whatever length the visitor named; the client library says which.
    kept = [(n, v) for n, v in scope["headers"] if n not in dropped and n != b"content-length"]
    return [*kept, (b"host", b"localhost")]


def _incoming(response: httpx.Response, tool: str) -> list[tuple[bytes, bytes]]:
    dropped = _CONNECTION_HEADERS | _REFUSED_ANSWERS | {name for name, _ in _ADDED}
    headers = []
    for name, value in response.headers.raw:
        lower = name.lower()
        if lower in dropped:
            continue
        if lower == b"location":
            # Only within the tool: it has no other address to send its visitors to.
            place = urlsplit(value.decode("latin-1"))
            path = place.path + (f"?{place.query}" if place.query else "")
            value = path.encode("latin-1") if path.startswith(f"/t/{tool}/") else f"/t/{tool}/".encode()
        headers.append((lower, value))
    return headers


def _has_body(scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in names or b"transfer-encoding" in names


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise OSError("the visitor went away")
        data = message.get("body", b"")
        size += len(data)
        if size > _LARGEST_BODY:
            raise ValueError("the body is too large")
        yield data
        if not message.get("more_body"):
            return
