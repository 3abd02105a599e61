"""What surrounds every request: its size is bounded, its time is measured, no exception gets out."""

from __future__ import annotations

import logging
import secrets
import time
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainshed.api.native.errors import answer_error
from trainshed.api.native.request_statistics import RequestStatistics
from trainshed.model.errors import TrainshedError

__all__ = ["RequestGuard"]

_log = logging.getLogger("trainshed.api")
# A job spec is a page of text; only code snapshots are larger, and they are streamed.
_BODY_LIMIT = 8 * 1024 * 1024


class RequestGuard:
    """The outermost layer of the native API."""

    def __init__(self, app: ASGIApp, statistics: RequestStatistics, unbounded: str) -> None:
        self._app = app
        self._statistics = statistics
        # Below this path bodies may have any size.
        self._unbounded = unbounded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        received = 0
        bounded = not scope["path"].startswith(self._unbounded)

        async def measured_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status == 413:
                    # The rest of the body is not read: whoever sent it must not use this connection again.
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        async def bounded_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if bounded and received > _BODY_LIMIT:
                raise HTTPException(413, f"The body is larger than {_BODY_LIMIT // 1024**2} MiB.")
            return message

        try:
            await self._app(scope, bounded_receive, measured_send)
        except Exception:
            fault_id = secrets.token_hex(4)
            _log.exception("request failed, id %s: %s %s", fault_id, scope["method"], scope["path"])
            if status:
                # Half an answer is out already: closing the connection is the only honest end.
                raise
            await answer_error(_unexpected(fault_id))(scope, receive, measured_send)
        finally:
            self._statistics.count(
                scope["method"], _route(scope), status or 499, time.perf_counter() - started
            )


def _unexpected(fault_id: str) -> TrainshedError:
    return TrainshedError(
        f"The platform failed to answer (id {fault_id}).",
        hint="Try again; if it stays, give this id to the administrator, who finds it in the API's log.",
        code="internal",
        where=fault_id,
    )


def _route(scope: Scope) -> str:
    # The pattern, not the path: the number of series must not grow with the number of jobs.
    route: Any = scope.get("route")
    path = str(getattr(route, "path", ""))
    if not path:
        return "unmatched"
    # Depending on the framework's version a route knows the prefix that it was included with, or not.
    return path if path.startswith("/api/") or not scope["path"].startswith("/api/") else f"/api/v1{path}"
